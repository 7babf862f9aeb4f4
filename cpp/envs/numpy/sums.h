// numpy's sums of arrays, in numpy's order: another order rounds differently.
#pragma once

#include <cmath>
#include <cstdint>

namespace stepmill {

// np.sum of n contiguous numbers, the i-th of them get(i): eight running sums, and for more than 128 numbers the sum of
// both halves.
template <class T, class Get>
T numpy_sum_of(std::int64_t first, std::int64_t n, const Get& get) {
  if (n == 0) return T(0);
  if (n < 8) {
    T sum = T(-0.0);  // so that a sum of negative zeros stays one
    for (std::int64_t i = 0; i < n; ++i) sum += get(first + i);
    return sum;
  }
  if (n <= 128) {
    T part[8];
    for (int k = 0; k < 8; ++k) part[k] = get(first + k);
    std::int64_t i = 8;
    for (; i < n - n % 8; i += 8)
      for (int k = 0; k < 8; ++k) part[k] += get(first + i + k);
    T sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < n; ++i) sum += get(first + i);
    return sum;
  }
  std::int64_t half = n / 2;
  half -= half % 8;
  return numpy_sum_of<T>(first, half, get) + numpy_sum_of<T>(first + half, n - half, get);
}

template <class T>
T numpy_sum(const T* x, std::int64_t n) {
  return numpy_sum_of<T>(0, n, [x](std::int64_t i) { return x[i]; });
}

// np.sum(np.square(x))
template <class T>
T numpy_sum_of_squares(const T* x, std::int64_t n) {
  return numpy_sum_of<T>(0, n, [x](std::int64_t i) { return x[i] * x[i]; });
}

// A sum of products, one after another. BLAS and einsum fuse each product with its sum on some CPUs; Python finds out
// whether they do so here (`stepmill/zoo/mujoco/simulator.py`).
inline double sum_of_products(bool fused, const double* x, std::int64_t x_step, const double* y, std::int64_t y_step,
                              std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = x[i * x_step], b = y[i * y_step];
    sum = fused ? std::fma(a, b, sum) : a * b + sum;
  }
  return sum;
}

// np.linalg.norm of a short vector.
inline double numpy_norm(bool fused, const double* x, std::int64_t n) {
  return std::sqrt(sum_of_products(fused, x, 1, x, 1, n));
}

}  // namespace stepmill
