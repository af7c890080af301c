"""Small dense linear algebra for kernels: no allocation, no library call, six or seven unknowns."""

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
