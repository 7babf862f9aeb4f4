// What all memory that we map ourselves has in common.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

namespace stepmill {

// If the address space is limited: the share of the free part that one arena or outbox takes.
inline constexpr std::size_t kPolitePart = 8;

// 4 KiB on most machines, 16 or 64 KiB on some of Arm.
inline std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Throws what the system just refused.
[[noreturn]] inline void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace stepmill
