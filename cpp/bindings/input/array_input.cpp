#include "bindings/python/numpy_api.h"

#include "bindings/input/array_input.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/host.h"
#include "bindings/input/half.h"
#include "bindings/input/players.h"
#include "bindings/python/errors.h"
#include "bindings/input/tensor_input.h"
#include "core/pool.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape, std::int64_t count, bool batched) {
  std::string out;
  if (batched) out = std::to_string(count) + ",";
  for (const std::int64_t extent : shape) {
    if (!out.empty()) out += ' ';
    out += std::to_string(extent) + ",";
  }
  if (shape.size() + (batched ? 1 : 0) > 1) out.pop_back();  // as Python writes tuples
  return "(" + out + ")";
}

std::string owner_of(const LeafInput& in, std::int64_t entry) {
  const std::int64_t row = in.rows.empty() ? entry : in.rows[static_cast<std::size_t>(entry)];
  std::string text = in.what;
  if (!in.leaf.name.empty()) text += " '" + in.leaf.name + "'";
  text += " of env ";
  if (!in.players) return text + std::to_string(in.env < 0 ? row : in.env);
  const auto rank = static_cast<std::size_t>(row % in.players->most);
  const auto& its_kind = in.players->of_kind(static_cast<std::size_t>(in.leaf.player_kind));
  return text + std::to_string(row / in.players->most) + ", player " + std::to_string(its_kind[rank]);
}

template <class T>
std::string number_text(T value) {
  if constexpr (std::is_integral_v<T>) return std::to_string(value);
  const auto number = static_cast<double>(value);
  if (std::isnan(number)) return "nan";  // without a sign
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", number);
  return text;
}

template <class T>
T bound(const std::vector<T>& bounds, std::int64_t element) {
  return bounds.size() == 1 ? bounds[0] : bounds[static_cast<std::size_t>(element)];
}

std::string range_text(const Leaf& leaf, std::int64_t element) {
  const auto range = [](auto low, auto high) { return "[" + number_text(low) + ", " + number_text(high) + "]"; };
  if (leaf.whole_low.empty()) return range(bound(leaf.low, element), bound(leaf.high, element));
  const std::int64_t low = bound(leaf.whole_low, element), high = bound(leaf.whole_high, element);
  if (leaf.dtype != DType::kUInt64) return range(low, high);
  return range(static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high));
}

[[noreturn]] void reject_value(const LeafInput& in, std::int64_t entry, std::int64_t element, const std::string& value) {
  const Leaf& leaf = in.leaf;
  std::string expected = leaf.kind == LeafKind::kBox ? "a number" : "a whole number in " + range_text(leaf, element);
  if (leaf.kind == LeafKind::kBox && value != "nan")
    expected += " in " + range_text(leaf, element) + " that " + name_of(leaf.dtype) + " can hold";
  std::string where = owner_of(in, entry);
  if (leaf.elements() > 1) where += ", element " + std::to_string(element);
  raise(in.error, where + ": expected " + expected + ", got " + value);
}

// How a message names a value, and the array that numpy made of it.
std::string describe_input(nb::handle value, PyArrayObject* array) {
  nb::handle made(reinterpret_cast<PyObject*>(array));
  if (PyArray_Check(value.ptr())) return describe_object(value);
  return describe_object(value) + " (" + describe_object(made) + ")";
}

[[noreturn]] void reject_type(const LeafInput& in, nb::handle value, PyArrayObject* array) {
  raise(std::string(in.error) == "ActionError" ? "ActionTypeError" : in.error,
        std::string(in.what) + ": expected numbers that " + name_of(in.leaf.dtype) +
            " can hold, got " + describe_input(value, array));
}

// Whether `value` can become a To without changing, except that floats may be rounded.
template <class To, class From>
bool fits(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return true;
  } else if constexpr (std::is_same_v<To, Half>) {
    const auto number = static_cast<double>(value);
    return !std::isfinite(number) || std::abs(number) < 65520.0;  // from here on it rounds to infinity
  } else if constexpr (std::is_same_v<To, bool>) {
    return value == From{0} || value == From{1};
  } else if constexpr (std::is_floating_point_v<To>) {
    if constexpr (std::is_floating_point_v<From>) {
      return !std::isfinite(value) || std::isfinite(static_cast<To>(value));
    } else {
      constexpr auto most = std::int64_t{1} << std::numeric_limits<To>::digits;  // up to here every integer is a float
      return std::cmp_less_equal(value, most) && std::cmp_greater_equal(value, -most);
    }
  } else if constexpr (std::is_floating_point_v<From>) {
    // The comparison with the limits comes first: converting a number out of range is undefined.
    constexpr double low = static_cast<double>(std::numeric_limits<To>::min());
    constexpr double end = 2.0 * static_cast<double>(std::numeric_limits<To>::max() / 2 + 1);  // max + 1, exactly
    return value >= low && value < end && std::trunc(value) == value;
  } else {
    return std::in_range<To>(value);
  }
}

// The common case, Discrete actions as int64, or as int32, which JAX makes of them: one pass that the compiler vectorises,
// even if the vector units cannot compare 64-bit numbers (x86-64 as built by default).
template <class T>
bool copy_discrete(const T* from, const LeafInput& in) {
  auto* to = reinterpret_cast<std::int64_t*>(in.table);
  // Unsigned, because there a difference wraps.
  const auto low = static_cast<std::uint64_t>(in.leaf.whole_low[0]);
  const auto span = static_cast<std::uint64_t>(in.leaf.whole_high[0]) - low;
  constexpr auto kTop = std::uint64_t{1} << 63;
  if (span >= kTop) return false;
  // A number above low by more than span, or below it, sets the top bit in one of the two.
  std::uint64_t bits = 0;
  const auto look_at = [&](std::int64_t value) {
    const std::uint64_t above = static_cast<std::uint64_t>(value) - low;
    bits |= above | (span - above);
    return value;
  };
  if (in.rows.empty())
    for (std::int64_t i = 0; i < in.count; ++i) to[i] = look_at(from[i]);
  else
    for (std::int64_t i = 0; i < in.count; ++i) to[in.rows[static_cast<std::size_t>(i)]] = look_at(from[i]);
  return (bits & kTop) == 0;
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_same_v<T, Half>) return value.is_nan();
  else return value != value;
}

// The other common case, a Box of floats as it is, whose bounds are the env's own affair: only NaN is refused.
template <class T>
bool copy_floats(const T* from, const LeafInput& in) {
  auto* to = reinterpret_cast<T*>(in.table);
  const std::int64_t elements = in.leaf.elements();
  int nan = 0;
  const auto copy = [&](const T* source, T* target, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = source[i];
      nan |= is_nan(value);
      target[i] = value;
    }
  };
  if (in.rows.empty())
    copy(from, to, in.count * elements);
  else
    for (std::int64_t i = 0; i < in.count; ++i)
      copy(from + i * elements, to + in.rows[static_cast<std::size_t>(i)] * elements, elements);
  return nan == 0;
}

// Copies by one of the two above; what is large in pieces, which the pool's threads share. Whether all values were good.
template <class T>
bool copy_quickly(bool (*copy)(const T*, const LeafInput&), const T* from, const LeafInput& in) {
  constexpr std::int64_t kPieceBytes = 16'384, kFewest = 8;  // a piece takes 1 or 2 µs, as does calling a thread
  const std::int64_t piece_rows = std::max<std::int64_t>(1, kPieceBytes / std::max<std::int64_t>(1, in.leaf.row_bytes()));
  if (!in.helper || in.count < kFewest * piece_rows) return copy(from, in);

  struct Work {
    bool (*copy)(const T*, const LeafInput&);
    const T* from;
    const LeafInput& in;
    std::int64_t piece_rows;
    std::atomic<bool> good{true};
  } work{copy, from, in, piece_rows};
  const auto do_piece = [](void* context, std::uint32_t index) {
    auto& w = *static_cast<Work*>(context);
    const std::int64_t first = index * w.piece_rows;
    LeafInput part = w.in;
    part.count = std::min(w.piece_rows, w.in.count - first);
    if (part.rows.empty())
      part.table += first * w.in.leaf.row_bytes();
    else
      part.rows = part.rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(part.count));
    if (!w.copy(w.from + first * w.in.leaf.elements(), part)) w.good.store(false, std::memory_order_relaxed);
  };
  in.helper->do_pieces(static_cast<std::uint32_t>((in.count + piece_rows - 1) / piece_rows), do_piece, &work);
  return work.good.load(std::memory_order_relaxed);
}

// The bounds of an element as its space has them: 0.4 is none of float32's, and 300 none of uint8's.
template <class T>
struct Range {
  T low{}, high{};
};

template <class T>
class Ranges {
 public:
  explicit Ranges(const Leaf& leaf) {
    if constexpr (std::is_integral_v<T>) set(leaf.whole_low, leaf.whole_high);
    else set(leaf.low, leaf.high);
  }
  bool are_one() const { return low_step_ == 0 && high_step_ == 0; }
  Range<T> of(std::int64_t element) const {
    return {static_cast<T>(low_[element * low_step_]), static_cast<T>(high_[element * high_step_])};
  }

 private:
  using Bound = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  void set(const std::vector<Bound>& low, const std::vector<Bound>& high) {
    low_ = low.data(), high_ = high.data();
    low_step_ = low.size() != 1, high_step_ = high.size() != 1;
  }

  const Bound *low_, *high_;
  std::int64_t low_step_, high_step_;  // 0: one bound for all
};

// Whether a value is below its bounds (-1), above (1) or neither, as the leaf would have it.
template <class To, class From>
int side_of(From value, const Range<To>& range) {
  if constexpr (std::is_integral_v<To>) {
    // A fraction, or a number outside of the type. The upper bound comes first: as a double, one of 64 bits may be the first
    // number after the type, and the lower bound that number too.
    if (!fits<To>(value)) {
      const auto number = static_cast<double>(value);
      return number >= static_cast<double>(range.high) ? 1 : number <= static_cast<double>(range.low) ? -1 : 0;
    }
  }
  const To number = static_cast<To>(value);
  return number < range.low ? -1 : range.high < number ? 1 : 0;
}

template <class To, class From>
void copy_checked(const From* from, const LeafInput& in) {
  const Leaf& leaf = in.leaf;
  const std::int64_t elements = leaf.elements();
  if (elements == 0) return;
  const bool ranged = in.check_values && (leaf.kind != LeafKind::kBox || in.bounds != Bounds::kPass);
  const bool clips = leaf.kind == LeafKind::kBox && in.bounds == Bounds::kClip;
  const Ranges<To> ranges(leaf);
  const bool is_one_range = ranges.are_one();
  Range<To> range = ranged ? ranges.of(0) : Range<To>{};
  for (std::int64_t entry = 0; entry < in.count; ++entry) {
    const std::int64_t row = in.rows.empty() ? entry : in.rows[static_cast<std::size_t>(entry)];
    To* to = reinterpret_cast<To*>(in.table) + row * elements;
    for (std::int64_t i = 0; i < elements; ++i) {
      const From value = from[entry * elements + i];
      if (in.check_values && is_nan(value)) reject_value(in, entry, i, number_text(value));
      if (ranged) {
        if (!is_one_range) range = ranges.of(i);
        if (const int side = side_of<To>(value, range); side != 0) {
          if (!clips) reject_value(in, entry, i, number_text(value));
          to[i] = side < 0 ? range.low : range.high;
          continue;
        }
      }
      if (!fits<To>(value)) reject_value(in, entry, i, number_text(value));
      to[i] = static_cast<To>(value);
    }
  }
}

template <class From>
void copy_from(const From* from, const LeafInput& in) {
  switch (in.leaf.dtype) {
    case DType::kBool: return copy_checked<bool>(from, in);
    case DType::kInt8: return copy_checked<std::int8_t>(from, in);
    case DType::kUInt8: return copy_checked<std::uint8_t>(from, in);
    case DType::kInt16: return copy_checked<std::int16_t>(from, in);
    case DType::kUInt16: return copy_checked<std::uint16_t>(from, in);
    case DType::kInt32: return copy_checked<std::int32_t>(from, in);
    case DType::kUInt32: return copy_checked<std::uint32_t>(from, in);
    case DType::kInt64: return copy_checked<std::int64_t>(from, in);
    case DType::kUInt64: return copy_checked<std::uint64_t>(from, in);
    case DType::kFloat32: return copy_checked<float>(from, in);
    case DType::kFloat64: return copy_checked<double>(from, in);
    case DType::kFloat16: return copy_checked<Half>(from, in);
  }
}

// The same type on both sides and nothing to check: whole rows.
void copy_rows(const char* from, const LeafInput& in) {
  const auto bytes = static_cast<std::size_t>(in.leaf.row_bytes());
  if (in.rows.empty()) {
    std::memcpy(in.table, from, bytes * static_cast<std::size_t>(in.count));
    return;
  }
  for (std::int64_t i = 0; i < in.count; ++i)
    std::memcpy(in.table + static_cast<std::size_t>(in.rows[static_cast<std::size_t>(i)]) * bytes,
                from + static_cast<std::size_t>(i) * bytes, bytes);
}

nb::object cast_array(PyArrayObject* array, int type) {
  return owned(PyArray_CastToType(array, PyArray_DescrFromType(type), 0));
}

// The value as a C-contiguous array in native byte order: the value itself if it is one.
nb::object as_array(nb::handle value, const LeafInput& in) {
  if (PyArray_Check(value.ptr()) &&
      PyArray_ISCARRAY_RO(reinterpret_cast<PyArrayObject*>(value.ptr())))
    return nb::borrow(value);
  nb::object plain = without_torch(value);
  // "Check": plain FromAny ignores the byte order.
  PyObject* out = plain.is_valid() ? PyArray_CheckFromAny(plain.ptr(), nullptr, 0, 0,
                                                          NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED, nullptr)
                                   : nullptr;
  if (out) return nb::steal(out);
  raise_because(std::string(in.error) == "ActionError" ? "ActionTypeError" : in.error, [&] {
    return std::string(in.what) + ": expected an array, a list or a tensor, got " + describe_object(value) +
           " that numpy cannot read";
  });
}

void check_shape(nb::handle value, PyArrayObject* array, const LeafInput& in) {
  const auto& shape = in.leaf.shape;
  const int lead = in.batched ? 1 : 0;
  bool good = PyArray_NDIM(array) == static_cast<int>(shape.size()) + lead;
  if (good && in.batched) good = PyArray_DIM(array, 0) == in.count;
  for (std::size_t i = 0; good && i < shape.size(); ++i)
    good = PyArray_DIM(array, static_cast<int>(i) + lead) == shape[i];
  if (good) return;
  std::string name = in.what;
  if (!in.leaf.name.empty()) name += " '" + in.leaf.name + "'";
  if (!in.batched) name = owner_of(in, 0);
  raise(in.error, name + ": expected shape " + shape_text(shape, in.count, in.batched) +
                      (in.batched ? std::string(" (one row per ") + (in.players ? "player" : "env") + ")" : "") + ", got " +
                      describe_input(value, array));
}

}  // namespace

void look_before_reading(nb::handle value) {
  if (!PyArray_Check(value.ptr())) look_for_signals();
}

Ids read_ids(nb::handle given, const std::string& name) {
  look_before_reading(given);
  nb::object plain = without_torch(given);
  nb::object holder;
  if (plain.is_valid()) holder = nb::steal(PyArray_FromAny(plain.ptr(), nullptr, 0, 0, 0, nullptr));
  if (!holder.is_valid())
    raise_because("EnvIdError", [&] {
      return name + ": expected an array or a list of env ids, got " + describe_object(given) + " that numpy cannot read";
    });
  auto* array = reinterpret_cast<PyArrayObject*>(holder.ptr());
  const auto size = static_cast<std::size_t>(PyArray_SIZE(array));  // of an empty one the type says nothing
  if (PyArray_NDIM(array) != 1 || (!PyTypeNum_ISINTEGER(PyArray_TYPE(array)) && size != 0))
    raise("EnvIdError", name + ": expected a 1-d array of integers, got " + describe_object(holder));
  nb::object out = owned(PyArray_FROM_OTF(holder.ptr(), NPY_INT64, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  const Ids ids{out, {data_of<const std::int64_t>(out), size}};
  if (PyTypeNum_ISUNSIGNED(PyArray_TYPE(array)))  // from 2^63 on they are negative now
    for (const std::int64_t id : ids.numbers)
      if (id < 0)
        raise("EnvIdError", name + " " + std::to_string(static_cast<std::uint64_t>(id)) + " is out of range");
  return ids;
}

void write_leaf(nb::handle value, const LeafInput& in) {
  nb::object holder = as_array(value, in);
  auto* array = reinterpret_cast<PyArrayObject*>(holder.ptr());
  check_shape(value, array, in);
  // Types of other libraries, such as JAX's bfloat16.
  if (PyTypeNum_ISUSERDEF(PyArray_TYPE(array)) && PyArray_CanCastSafely(PyArray_TYPE(array), NPY_FLOAT64)) {
    holder = cast_array(array, NPY_FLOAT64);
    array = reinterpret_cast<PyArrayObject*>(holder.ptr());
  }
  const int type = PyArray_TYPE(array);
  const int wanted = numpy_type(in.leaf.dtype);

  const bool same = PyArray_EquivTypenums(type, wanted) != 0;
  if (same && !in.check_values) return copy_rows(PyArray_BYTES(array), in);

  const auto write = [&](DType as) { write_numbers(PyArray_DATA(reinterpret_cast<PyArrayObject*>(holder.ptr())), as, in); };
  // Floats first: numpy takes long to tell that they are no integers.
  if (type == NPY_FLOAT32) return write(DType::kFloat32);
  if (type == NPY_FLOAT64) return write(DType::kFloat64);
  if (same && type == NPY_FLOAT16) return write(DType::kFloat16);
  if (PyArray_EquivTypenums(type, NPY_INT64)) return write(DType::kInt64);
  if (PyArray_EquivTypenums(type, NPY_INT32)) return write(DType::kInt32);
  if (PyArray_EquivTypenums(type, NPY_UINT64)) return write(DType::kUInt64);
  if (PyTypeNum_ISINTEGER(type) || PyTypeNum_ISBOOL(type)) {
    holder = cast_array(array, NPY_INT64);
    return write(DType::kInt64);
  }
  if (PyTypeNum_ISFLOAT(type)) {
    holder = cast_array(array, NPY_FLOAT64);
    return write(DType::kFloat64);
  }
  reject_type(in, value, array);
}

void check_numbers(std::span<const std::int64_t> shape, const LeafInput& in) {
  const auto& row = in.leaf.shape;
  if (!shape.empty() && shape[0] == in.count && std::equal(shape.begin() + 1, shape.end(), row.begin(), row.end())) return;
  const std::string name = in.leaf.name.empty() ? std::string(in.what) : std::string(in.what) + " '" + in.leaf.name + "'";
  raise(in.error, name + ": expected shape " + shape_text(in.leaf.shape, in.count, true) + " (one row per env), got " +
                      (shape.empty() ? "()" : shape_text({shape.begin() + 1, shape.end()}, shape[0], true)));
}

void write_numbers(const void* numbers, DType type, const LeafInput& in) {
  const bool same = type == in.leaf.dtype;
  if (same && !in.check_values) return copy_rows(static_cast<const char*>(numbers), in);
  const auto as = [&]<class T>(T) { return static_cast<const T*>(numbers); };
  if (in.leaf.dtype == DType::kInt64 && in.leaf.kind == LeafKind::kDiscrete && in.check_values) {
    if (same && copy_quickly(copy_discrete<std::int64_t>, as(std::int64_t{}), in)) return;
    if (type == DType::kInt32 && copy_quickly(copy_discrete<std::int32_t>, as(std::int32_t{}), in)) return;
  }
  if (same && in.leaf.kind == LeafKind::kBox && in.bounds == Bounds::kPass) {
    if (type == DType::kFloat32 && copy_quickly(copy_floats<float>, as(float{}), in)) return;
    if (type == DType::kFloat64 && copy_quickly(copy_floats<double>, as(double{}), in)) return;
    if (type == DType::kFloat16 && copy_quickly(copy_floats<Half>, as(Half{}), in)) return;
  }
  // Everything else, and what these refuse: this finds the culprit.
  const auto widened = [&]<class T>(T) {
    const auto* from = as(T{});
    const std::vector<std::int64_t> wide(from, from + in.count * in.leaf.elements());
    copy_from(wide.data(), in);
  };
  switch (type) {
    case DType::kInt32: return copy_from(as(std::int32_t{}), in);
    case DType::kInt64: return copy_from(as(std::int64_t{}), in);
    case DType::kUInt64: return copy_from(as(std::uint64_t{}), in);
    case DType::kFloat32: return copy_from(as(float{}), in);
    case DType::kFloat64: return copy_from(as(double{}), in);
    case DType::kBool: return widened(bool{});
    case DType::kInt8: return widened(std::int8_t{});
    case DType::kUInt8: return widened(std::uint8_t{});
    case DType::kInt16: return widened(std::int16_t{});
    case DType::kUInt16: return widened(std::uint16_t{});
    case DType::kUInt32: return widened(std::uint32_t{});
    case DType::kFloat16:
      if (same) return copy_checked<Half>(as(Half{}), in);
      break;
  }
  throw std::logic_error("write_numbers: float16");
}

}  // namespace stepmill
