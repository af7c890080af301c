"""Small dense linear algebra for kernels: no allocation, no library call, a handful of unknowns."""

import numpy as np

from ik_sim.compiled import kernel


@kernel
def solve_spd(A, x, n):
    """Solve A x = b for symmetric positive definite A (n, n) in place: A becomes its Cholesky factor, x goes from b to x.

    Returns False, with x unusable, when A isn't positive definite to rounding.
    """
    for j in range(n):
        d = A[j, j]
        for k in range(j):
            d -= A[j, k] * A[j, k]
        if not d > 0.0:
            return False
        d = np.sqrt(d)
        A[j, j] = d
        inv = 1.0 / d
        v = x[j]
        for k in range(j):
            v -= A[j, k] * x[k]
        x[j] = v * inv
        for i in range(j + 1, n):
            v = A[i, j]
            for k in range(j):
                v -= A[i, k] * A[j, k]
            A[i, j] = v * inv
    for j in range(n - 1, -1, -1):
        v = x[j]
        for k in range(j + 1, n):
            v -= A[k, j] * x[k]
        x[j] = v / A[j, j]
    return True


@kernel
def solve_spd6(
    a00, a10, a11, a20, a21, a22, a30, a31, a32, a33, a40, a41, a42, a43, a44, a50, a51, a52, a53, a54, a55,
    b0, b1, b2, b3, b4, b5,
):  # fmt: skip
    """As :func:`solve_spd` for six unknowns, in scalars: the lower triangle row by row, then the right side.

    Returns whether the matrix was regular, and the six unknowns.
    """
    nothing = False, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if not a00 > 0.0:
        return nothing
    r0 = 1.0 / np.sqrt(a00)
    l10, l20, l30, l40, l50 = a10 * r0, a20 * r0, a30 * r0, a40 * r0, a50 * r0
    d = a11 - l10 * l10
    if not d > 0.0:
        return nothing
    r1 = 1.0 / np.sqrt(d)
    l21, l31 = (a21 - l20 * l10) * r1, (a31 - l30 * l10) * r1
    l41, l51 = (a41 - l40 * l10) * r1, (a51 - l50 * l10) * r1
    d = a22 - l20 * l20 - l21 * l21
    if not d > 0.0:
        return nothing
    r2 = 1.0 / np.sqrt(d)
    l32 = (a32 - l30 * l20 - l31 * l21) * r2
    l42 = (a42 - l40 * l20 - l41 * l21) * r2
    l52 = (a52 - l50 * l20 - l51 * l21) * r2
    d = a33 - l30 * l30 - l31 * l31 - l32 * l32
    if not d > 0.0:
        return nothing
    r3 = 1.0 / np.sqrt(d)
    l43 = (a43 - l40 * l30 - l41 * l31 - l42 * l32) * r3
    l53 = (a53 - l50 * l30 - l51 * l31 - l52 * l32) * r3
    d = a44 - l40 * l40 - l41 * l41 - l42 * l42 - l43 * l43
    if not d > 0.0:
        return nothing
    r4 = 1.0 / np.sqrt(d)
    l54 = (a54 - l50 * l40 - l51 * l41 - l52 * l42 - l53 * l43) * r4
    d = a55 - l50 * l50 - l51 * l51 - l52 * l52 - l53 * l53 - l54 * l54
    if not d > 0.0:
        return nothing
    r5 = 1.0 / np.sqrt(d)
    y0 = b0 * r0
    y1 = (b1 - l10 * y0) * r1
    y2 = (b2 - l20 * y0 - l21 * y1) * r2
    y3 = (b3 - l30 * y0 - l31 * y1 - l32 * y2) * r3
    y4 = (b4 - l40 * y0 - l41 * y1 - l42 * y2 - l43 * y3) * r4
    y5 = (b5 - l50 * y0 - l51 * y1 - l52 * y2 - l53 * y3 - l54 * y4) * r5
    y5 *= r5
    y4 = (y4 - l54 * y5) * r4
    y3 = (y3 - l43 * y4 - l53 * y5) * r3
    y2 = (y2 - l32 * y3 - l42 * y4 - l52 * y5) * r2
    y1 = (y1 - l21 * y2 - l31 * y3 - l41 * y4 - l51 * y5) * r1
    y0 = (y0 - l10 * y1 - l20 * y2 - l30 * y3 - l40 * y4 - l50 * y5) * r0
    return True, y0, y1, y2, y3, y4, y5


@kernel
def svd_rows(J, rows, n, W, V, sigma):
    """Thin singular value decomposition of J (rows, n) by one-sided Jacobi rotations of its rows.

    Writes W (rows, n): row i is σ_i v_iᵀ; V (rows, rows): column i is u_i; sigma (rows,), in no particular order.
    So J = Σ u_i (row i of W). Accurate for small singular values too.
    """
    for i in range(rows):
        for k in range(n):
            W[i, k] = J[i, k]
        for k in range(rows):
            V[i, k] = 1.0 if i == k else 0.0
    for _ in range(30):
        largest = 0.0
        for i in range(rows - 1):
            for j in range(i + 1, rows):
                aa, bb, ab = 0.0, 0.0, 0.0
                for k in range(n):
                    aa += W[i, k] * W[i, k]
                    bb += W[j, k] * W[j, k]
                    ab += W[i, k] * W[j, k]
                if ab == 0.0 or ab * ab <= 1e-30 * aa * bb:
                    continue
                largest = max(largest, ab * ab / (aa * bb))
                zeta = (bb - aa) / (2.0 * ab)
                t = (1.0 if zeta >= 0.0 else -1.0) / (abs(zeta) + np.sqrt(1.0 + zeta * zeta))
                cos = 1.0 / np.sqrt(1.0 + t * t)
                sin = cos * t
                for k in range(n):
                    W[i, k], W[j, k] = cos * W[i, k] - sin * W[j, k], sin * W[i, k] + cos * W[j, k]
                for k in range(rows):
                    V[k, i], V[k, j] = cos * V[k, i] - sin * V[k, j], sin * V[k, i] + cos * V[k, j]
        if largest <= 1e-28:
            break
    for i in range(rows):
        square = 0.0
        for k in range(n):
            square += W[i, k] * W[i, k]
        sigma[i] = np.sqrt(square)
