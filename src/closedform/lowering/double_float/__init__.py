"""Scalars in pairs of float32, for devices without float64: rounded once, within 0.501 ulp."""
