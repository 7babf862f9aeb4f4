// What an env's code may change for all that runs after it in the same thread or process: how numbers are computed
// (rounding, subnormal numbers, traps), and the locale. Whoever runs such code remembers them before, and restores them
// after. To load a library is to run code: what gcc links with -ffast-math flushes subnormal numbers to zero.
#pragma once

#include <clocale>
#include <cstdint>
#include <cstring>
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stepmill {

class Surroundings {
 public:
  Surroundings() : numbers_(numbers()), locale_(std::setlocale(LC_ALL, nullptr)) {}

  void restore() const {
    if (numbers() != numbers_) [[unlikely]] set_numbers(numbers_);
    if (std::strcmp(std::setlocale(LC_ALL, nullptr), locale_.c_str()) != 0) [[unlikely]]
      std::setlocale(LC_ALL, locale_.c_str());
  }

 private:
  // Without the flags that say what has happened.
  static std::uint64_t numbers() {
#if defined(__x86_64__)
    std::uint16_t x87 = 0;
    asm volatile("fnstcw %0" : "=m"(x87));
    return (std::uint64_t{x87} << 32) | (_mm_getcsr() & ~0x3fu);
#elif defined(__aarch64__)
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
#else
#error "how does this processor say how it rounds?"
#endif
  }
  static void set_numbers(std::uint64_t to) {
#if defined(__x86_64__)
    const auto x87 = static_cast<std::uint16_t>(to >> 32);
    asm volatile("fldcw %0" : : "m"(x87));
    _mm_setcsr(static_cast<unsigned>(to));
#else
    asm volatile("msr fpcr, %0" : : "r"(to));
#endif
  }

  const std::uint64_t numbers_;
  const std::string locale_;
};

// Restores them at the end of a block.
class KeptSurroundings {
 public:
  KeptSurroundings() = default;
  ~KeptSurroundings() { before_.restore(); }
  KeptSurroundings(const KeptSurroundings&) = delete;
  KeptSurroundings& operator=(const KeptSurroundings&) = delete;

 private:
  const Surroundings before_;
};

}  // namespace stepmill
