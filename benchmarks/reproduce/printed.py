"""What the paper prints in its section 4, to stand beside our own results.

Each entry is (mean, standard error); None where the paper has no figure. The program behind these
figures is not the algorithm that the paper describes, so they are there to compare with.
"""

from __future__ import annotations

from typing import Any

Figure = tuple[float, float]

#: Table 1: RMSE and NLL by initial rank, 20 functions.
TABLE_1: dict[str, dict[str, dict[int, Figure]]] = {
    "airfoil": {
        "rmse": {10: (2.047, 0.204), 25: (1.723, 0.151), 50: (1.786, 0.209)},
        "nll": {10: (3.491, 0.110), 25: (2.865, 0.152), 50: (2.884, 0.160)},
    },
    "concrete": {
        "rmse": {10: (6.165, 1.207), 25: (5.452, 1.242), 50: (5.343, 0.860)},
        "nll": {10: (3.403, 0.091), 25: (3.387, 0.171), 50: (3.317, 0.161)},
    },
    "energy-paper": {
        "rmse": {10: (1.321, 0.227), 25: (1.114, 0.312), 50: (1.419, 0.288)},
        "nll": {10: (3.268, 0.450), 25: (2.174, 0.542), 50: (2.466, 0.982)},
    },
}

#: Table 2: effective rank by initial rank.
TABLE_2: dict[str, dict[int, Figure]] = {
    "airfoil": {10: (4.0, 0.0), 25: (9.5, 0.5), 50: (7.7, 1.4)},
    "concrete": {10: (4.4, 0.7), 25: (5.3, 0.5), 50: (5.2, 0.7)},
    "energy-paper": {10: (3.0, 0.0), 25: (4.9, 0.9), 50: (3.0, 0.0)},
}

#: Table 3: by number of functions, then with lambda_M ("on") and without ("off"); initial rank 25.
TABLE_3: dict[str, dict[int, dict[str, dict[str, Figure]]]] = {
    "concrete": {
        20: {
            "rmse": {"on": (5.452, 1.242), "off": (5.328, 1.192)},
            "nll": {"on": (3.387, 0.171), "off": (4.095, 0.168)},
            "rank": {"on": (5.3, 0.5), "off": (5.3, 0.5)},
        },
        50: {
            "rmse": {"on": (5.241, 1.075), "off": (5.490, 0.679)},
            "nll": {"on": (3.811, 0.203), "off": (5.381, 0.314)},
            "rank": {"on": (6.3, 0.8), "off": (6.3, 0.8)},
        },
    },
    "energy-paper": {
        20: {
            "rmse": {"on": (1.114, 0.312), "off": (1.150, 0.155)},
            "nll": {"on": (2.174, 0.543), "off": (2.810, 0.621)},
            "rank": {"on": (4.9, 0.9), "off": (4.5, 0.7)},
        },
        50: {
            "rmse": {"on": (1.353, 0.181), "off": (1.441, 0.202)},
            "nll": {"on": (3.738, 0.379), "off": (4.697, 0.374)},
            "rank": {"on": (2.7, 0.6), "off": (2.7, 0.6)},
        },
    },
    "airfoil": {
        20: {
            "rmse": {"on": (1.723, 0.151), "off": (1.746, 0.182)},
            "nll": {"on": (2.865, 0.152), "off": (3.046, 0.113)},
            "rank": {"on": (9.5, 0.5), "off": (9.3, 0.5)},
        },
        50: {
            "rmse": {"on": (1.727, 0.181), "off": (1.700, 0.155)},
            "nll": {"on": (3.557, 0.288), "off": (3.971, 0.216)},
            "rank": {"on": (7.9, 0.7), "off": (7.8, 0.7)},
        },
    },
}

#: Table 4: RMSE, or the share of wrong labels, and NLL, by method.
TABLE_4: dict[str, dict[str, Any]] = {
    "yacht": {
        "rank": (5.2, 0.6),
        "error": {
            "gp": (0.402, 0.131),
            "btn": (0.379, 0.132),
            "tkrr": (0.894, 0.478),
            "spbtn": (0.506, 0.091),
        },
        "nll": {"gp": (0.105, 0.336), "btn": (0.598, 0.782)},
    },
    "energy-paper": {
        "rank": (10.1, 1.3),
        "error": {
            "gp": (1.296, 0.290),
            "btn": (0.456, 0.069),
            "tkrr": (0.641, 0.135),
            "spbtn": (0.549, 0.200),
        },
        "nll": {"gp": (1.680, 0.223), "btn": (1.530, 0.271)},
    },
    "concrete": {
        "rank": (5.3, 0.5),
        "error": {
            "gp": (5.565, 0.520),
            "btn": (5.452, 1.242),
            "tkrr": (4.959, 0.620),
            "spbtn": (5.500, 0.230),
        },
        "nll": {"gp": (3.078, 0.080), "btn": (3.387, 0.171)},
    },
    "airfoil": {
        "rank": (6.2, 0.4),
        "error": {
            "gp": (2.293, 0.199),
            "btn": (1.723, 0.151),
            "tkrr": (1.806, 0.144),
            "spbtn": None,
        },
        "nll": {"gp": (2.281, 0.084), "btn": (2.865, 0.152)},
    },
    "spambase": {
        "rank": (8.6, 1.2),
        "error": {"gp": (0.095, 0.016), "btn": (0.075, 0.015), "tkrr": (0.066, 0.012)},
        "nll": {"gp": (0.720, 0.146), "btn": (0.499, 0.047)},
    },
    "adult-96": {
        "rank": (6.3, 0.5),
        "error": {"gp": None, "btn": (0.144, 0.005), "tkrr": (0.1658, 0.0069)},
        "nll": {"gp": None, "btn": (0.674, 0.003)},
    },
}
