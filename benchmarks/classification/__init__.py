"""Classification beside other probabilistic classifiers: error, log loss, calibration, vectors, time, memory."""
