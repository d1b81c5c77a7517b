"""The paper's own numbers (arXiv 2202.13802, Tables 1 to 3): Recall@5, 10, 20, with BERT-base.

They are of the paper's corpora, backbone and budget, and so are a reference for orders and gaps, not for values.
"""

from __future__ import annotations

Recalls = tuple[float, ...]

COLUMNS = {"news": "News", "web_document": "Web Document", "web_browsing": "Web Browsing"}

_PAPER: dict[str, tuple[float, ...]] = {
    "simcse": (0.3236, 0.3733, 0.4744, 0.1639, 0.2129, 0.2961, 0.0319, 0.0456, 0.0694),
    "consert": (0.2512, 0.2912, 0.3839, 0.1335, 0.1717, 0.2483, 0.0295, 0.0418, 0.0628),
    "mirror_bert": (0.2950, 0.3399, 0.4422, 0.1910, 0.2434, 0.3333, 0.0340, 0.0491, 0.0754),
    "ict": (0.3872, 0.4540, 0.5589, 0.2842, 0.3603, 0.4678, 0.0595, 0.0855, 0.1210),
    "cpc": (0.3250, 0.3819, 0.4856, 0.2787, 0.3540, 0.4608, 0.0569, 0.0818, 0.1166),
    "declutr": (0.4786, 0.5380, 0.6495, 0.3155, 0.3925, 0.5104, 0.0628, 0.0900, 0.1259),
    "conpono": (0.4257, 0.5010, 0.5980, 0.2285, 0.2953, 0.3862, 0.0142, 0.0251, 0.0403),
    "infocse": (0.6345, 0.7016, 0.7864, 0.3612, 0.4425, 0.5538, 0.0661, 0.0967, 0.1362),
    "infocse_kmeans": (0.5343, 0.6111, 0.7099, 0.3366, 0.4159, 0.5206, 0.0600, 0.0875, 0.1255),
    "iteration_1": (0.5721, 0.6421, 0.7332, 0.3531, 0.4348, 0.5452, 0.0646, 0.0939, 0.1315),
    "iteration_2": (0.6345, 0.7016, 0.7864, 0.3612, 0.4425, 0.5538, 0.0661, 0.0967, 0.1362),
    "iteration_3": (0.6341, 0.6999, 0.7860, 0.3458, 0.4247, 0.5350, 0.0656, 0.0956, 0.1369),
    "infocse_simcse": (0.6155, 0.6859, 0.7742, 0.3617, 0.4428, 0.5530, 0.0733, 0.1051, 0.1479),
    "infocse_ict": (0.6302, 0.6973, 0.7830, 0.3601, 0.4420, 0.5511, 0.0727, 0.1043, 0.1454),
    "infocse_plusplus_1000": (0.6852, 0.7501, 0.8268, 0.4853, 0.5641, 0.6642, 0.0940, 0.1308, 0.1794),
    "infocse_1000": (0.6484, 0.7171, 0.7992, 0.4644, 0.5419, 0.6472, 0.0892, 0.1260, 0.1727),
    "infocse_plusplus_all": (0.7033, 0.7653, 0.8407, 0.5358, 0.6216, 0.7215, 0.1041, 0.1448, 0.1967),
    "infocse_all": (0.6927, 0.7559, 0.8307, 0.5129, 0.5979, 0.6988, 0.1039, 0.1426, 0.1936),
    "infocse_first_encoder": (0.6639, 0.7275, 0.8070, 0.3692, 0.4509, 0.5621, 0.0764, 0.1087, 0.1525),
}
"""By row: three recalls each for News, Web Document and Web Browsing."""

_FEW_SHOT: dict[str, tuple[float, ...]] = {
    "start": (0.3546, 0.3742, 0.4206, 0.3035, 0.3331, 0.3717, 0.0632, 0.0728, 0.0844),
    "simcse": (0.4326, 0.4460, 0.4803, 0.3338, 0.3685, 0.4036, 0.0736, 0.0789, 0.0898),
    "consert": (0.4306, 0.4604, 0.5001, 0.3517, 0.3786, 0.4225, 0.0704, 0.0751, 0.0847),
    "mirror_bert": (0.4344, 0.4508, 0.4881, 0.3463, 0.3682, 0.4085, 0.0742, 0.0780, 0.0904),
    "ict": (0.5351, 0.5477, 0.5644, 0.4240, 0.4358, 0.4403, 0.0799, 0.0830, 0.0914),
    "cpc": (0.4349, 0.4589, 0.4952, 0.4348, 0.4513, 0.4650, 0.0788, 0.0844, 0.0913),
    "declutr": (0.5824, 0.5854, 0.6080, 0.4367, 0.4525, 0.4807, 0.0780, 0.0832, 0.0892),
    "conpono": (0.5430, 0.5467, 0.5618, 0.4000, 0.4093, 0.4428, 0.0217, 0.0233, 0.0286),
    "infocse": (0.6484, 0.6611, 0.6788, 0.4644, 0.4850, 0.4957, 0.0892, 0.0921, 0.0983),
}
"""By method: Recall@5 with 1,000, 2,000 and 5,000 labelled examples, for each of the three corpora (Table 2)."""


def paper_recalls(row: str, column: str) -> Recalls | None:
    """Recall@5, 10, 20 of a row in a column of the paper, of Table 2 recall@5 alone; None where the paper has none."""
    first = 3 * list(COLUMNS).index(column)
    method, _, size = row.rpartition("_")
    if row not in _PAPER:
        if method not in _FEW_SHOT or size not in ("1000", "2000", "5000"):
            return None
        return (_FEW_SHOT[method][first + ("1000", "2000", "5000").index(size)],)
    five, ten, twenty = _PAPER[row][first : first + 3]
    return five, ten, twenty
