"""Functions of doubles, as formulas: to two units in the last place, for all numbers there are.

    pairs          numbers of twice the digits: sums of two doubles
    exponentials   exp, exp2, expm1, sinh, cosh, tanh, logistic
    logarithms     log, log1p, powers, asinh, acosh, atanh
    circle         sin, cos, tan, and angles of any size less whole quarter turns
    arcs           asin, acos, atan, atan2
    errors         erf, erfc, and the inverse of erf
    factorials     lgamma, digamma
    zeros          both of them where they vanish below 0
    steps          cube roots, remainders, neighbours

Polynomials without a comment were fitted by interpolation at Chebyshev's points, which is within little of the best
fit (L. N. Trefethen, "Approximation Theory and Approximation Practice", 2013, chapter 16), with 400 bits. What the
functions reach is measured by `python -m benchmarks.ulp`.
"""
