"""The ends of 500 random damages: the table of the page on reliability as bars."""

import matplotlib.pyplot as plt

ENDS = {
    "model of a regression": (60, 34, 0),
    "model of a classification": (62, 36, 0),
    "DATA": (47, 44, 1),
    "job: state and model": (49, 61, 0),
    "job: resumed": (23, 87, 0),
    "overwritten job: state": (39, 67, 0),
    "overwritten job: resumed": (22, 84, 0),
}

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
named, same, before = zip(*ENDS.values(), strict=True)
axes.barh(list(ENDS), named, color="#0072B2", label="named error")
axes.barh(list(ENDS), same, left=named, color="#009E73", label="same bits")
left = [one + other for one, other in zip(named, same, strict=True)]
axes.barh(list(ENDS), before, left=left, color="#E69F00", label="as before the last append")
axes.invert_yaxis()
axes.set(xlabel="random damages", title="Other ends: none")
axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
plt.show()
