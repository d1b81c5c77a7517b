"""The paper's own numbers (arXiv 2202.13802, Tables 1 and 3): Recall@5, 10, 20, zero-shot, with BERT-base.

They are of the paper's corpora, backbone and budget, and so are a reference for orders and gaps, not for values.
"""

from __future__ import annotations

Recalls = tuple[float, float, float]

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
    "infocse_first_encoder": (0.6639, 0.7275, 0.8070, 0.3692, 0.4509, 0.5621, 0.0764, 0.1087, 0.1525),
}
"""By row: three recalls each for News, Web Document and Web Browsing."""


def paper_recalls(row: str, column: str) -> Recalls | None:
    """Recall@5, 10, 20 of a row in a column of the paper; None where the paper has no such row."""
    if row not in _PAPER:
        return None
    first = 3 * list(COLUMNS).index(column)
    five, ten, twenty = _PAPER[row][first : first + 3]
    return five, ten, twenty
