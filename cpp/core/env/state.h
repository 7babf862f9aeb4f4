// How an env whose memory cannot be copied as it is saves what decides its future, and reads it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace stepmill {

// Takes the values of a state, one after another.
class Writer {
 public:
  using Put = void (*)(void* sink, const void* bytes, std::int64_t count);

  Writer(void* sink, Put by) : sink_(sink), put_(by) {}

  template <class... T>
  void put(const T&... values) {
    (put_one(values), ...);
  }
  template <class T>
  void put_array(const T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "its bytes mean nothing elsewhere");
    put_(sink_, values, static_cast<std::int64_t>(count * sizeof(T)));
  }

 private:
  template <class T>
  void put_one(const T& value) {
    put_array(&value, 1);
  }
  void put_one(const std::string& text) {
    put_one(text.size());
    put_array(text.data(), text.size());
  }

  void* sink_;
  Put put_;
};

// A `Put` whose sink is a vector. Inlined for a single byte, GCC 12 warns of an overflow that is none.
[[gnu::noinline]] inline void add_bytes(void* sink, const void* bytes, std::int64_t count) {
  auto& to = *static_cast<std::vector<std::byte>*>(sink);
  const auto* first = static_cast<const std::byte*>(bytes);
  to.insert(to.end(), first, first + count);
}

// Gives them back in the same order. Throws if there are fewer: a state is data that may have come from anywhere.
class Reader {
 public:
  Reader(const void* bytes, std::int64_t count)
      : at_(static_cast<const std::byte*>(bytes)), end_(at_ + static_cast<std::size_t>(count)) {}

  template <class... T>
  void take(T&... values) {
    (take_one(values), ...);
  }
  template <class T>
  void take_array(T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "its bytes mean nothing here");
    if (count > left() / sizeof(T)) throw std::runtime_error("a state that ends too soon");
    if (count) std::memcpy(values, at_, count * sizeof(T));
    at_ += count * sizeof(T);
  }

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  // Throws if there are more.
  void finish() const {
    if (left() != 0) throw std::runtime_error("a state that goes on after its end");
  }

 private:
  template <class T>
  void take_one(T& value) {
    take_array(&value, 1);
  }
  void take_one(std::string& text) {
    std::size_t size = 0;
    take_one(size);
    if (size > left()) throw std::runtime_error("a state that ends too soon");
    text.assign(reinterpret_cast<const char*>(at_), size);
    at_ += size;
  }

  const std::byte* at_;
  const std::byte* end_;
};

}  // namespace stepmill
