"""Systems of the sources that are not on the main path, for comparisons: as the sources write them,
in memory. No other part imports them.

``tipping`` and ``softmax`` follow Tipping (2001), and Denœux's slides for thresholds; ``kth``
follows the KTH report (2019), ``own_rows`` Ben-Shimon & Shmilovici (2006), ``tmb`` the TMB paper.
The guide has a page on them: "Systems of the sources".
"""
