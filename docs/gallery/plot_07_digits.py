"""
Digits
======

This example trains a classifier to recognise handwritten digits. It shows the accuracy, the
confusion matrix, the number of relevance vectors, and the test images that the classifier is least
certain about.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from partirvm import RVMClassifier

# %% The data are 1,797 images of 8 × 8 pixels. Pixels that have the same value in all training
# images are dropped.

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
used = np.ptp(X_train, axis=0) > 0

# %% All pixels are in the same unit, so they are not standardised. ``gamma="scale"`` sets one fixed
# width for all features instead of learning it.

model = RVMClassifier(kernel="gaussian", gamma="scale", standardize=False, random_state=0)
model.fit(X_train[:, used], y_train)
probabilities = model.predict_proba(X_test[:, used])
predicted = model.predict(X_test[:, used])

print(f"relevance vectors: {model.n_relevance_vectors_} of {len(X_train):,} training images")
print(f"accuracy on {len(X_test)} test images: {accuracy_score(y_test, predicted):.1%}")
print(f"log loss: {log_loss(y_test, probabilities):.3f} nats")

# %%
# The rows of the confusion matrix are the true digits, and the columns are the predicted digits.

figure, axis = plt.subplots(figsize=(5.5, 5), layout="constrained")
ConfusionMatrixDisplay.from_predictions(y_test, predicted, cmap="Blues", colorbar=False, ax=axis)
axis.set(xlabel="predicted digit", ylabel="true digit", title="Number of test images")
plt.show()

# %% The uncertainty of a prediction is measured by the entropy of its class probabilities. The ten
# test images with the highest entropy are shown below, each with its true digit and the two most
# probable digits.

entropy = -np.sum(probabilities * np.log(np.maximum(probabilities, 1e-300)), axis=1)
figure, axes = plt.subplots(2, 5, figsize=(9, 4.6), layout="constrained")
for axis, row in zip(axes.flat, np.argsort(-entropy), strict=False):
    first, second = np.argsort(-probabilities[row])[:2]
    axis.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    chances = (
        f"{first}: {probabilities[row, first]:.0%}, {second}: {probabilities[row, second]:.0%}"
    )
    axis.set_title(f"true digit {y_test[row]}\n{chances}", fontsize=10)
    axis.set_axis_off()
plt.show()

# %%
# Many of these images are hard for a person to read, too.

certain = entropy < np.quantile(entropy, 0.9)
print(
    "accuracy on the 90 % most certain images: "
    f"{accuracy_score(y_test[certain], predicted[certain]):.1%}"
)
