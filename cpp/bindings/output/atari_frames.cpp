#include "bindings/python/numpy_api.h"

#include "bindings/output/atari_frames.h"

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/python/values.h"
#include "envs/atari/frames.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

nb::object zeroed(std::initializer_list<int> shape) {
  npy_intp extents[4];
  std::copy(shape.begin(), shape.end(), extents);
  return owned(PyArray_ZEROS(static_cast<int>(shape.size()), extents, NPY_UINT8, 0));
}

// The arrays are made here, so their shapes are right and their memory stays where it is.
class AtariFrames {
 public:
  AtariFrames(const FrameSizes& s, bool fused)
      : sizes(s),
        screen(zeroed({s.height, s.width})),
        pictures(s.channels == 1 ? zeroed({2, s.height, s.width}) : zeroed({2, s.height, s.width, s.channels})),
        stack(zeroed({s.stack * s.channels, s.new_height, s.new_width})),
        frames(s, {data_of<std::uint8_t>(screen), data_of<std::uint8_t>(pictures), data_of<std::uint8_t>(stack)}, fused) {}

  FrameSizes sizes;
  nb::object screen, pictures, stack;
  Frames frames;
};

}  // namespace

void register_atari_frames(nb::module_& m) {
  nb::class_<AtariFrames>(m, "AtariFrames")
      .def("__init__",
           [](AtariFrames* self, int height, int width, int channels, int new_height, int new_width, int stack,
              bool fused) {
             // Before memory is asked for.
             for (const int extent : {height, width, new_height, new_width, stack})
               if (extent < 1 || extent > 1 << 14) raise("ConfigError", "frames: expected sizes from 1 to 16384");
             if (channels != 1 && channels != 3) raise("ConfigError", "frames: expected 1 or 3 channels");
             new (self) AtariFrames({height, width, channels, new_height, new_width, stack}, fused);
           },
           "height"_a, "width"_a, "channels"_a, "new_height"_a, "new_width"_a, "stack"_a, "fused"_a)
      .def_ro("screen", &AtariFrames::screen)
      .def_ro("pictures", &AtariFrames::pictures)
      .def_ro("stack", &AtariFrames::stack)
      .def("translate", [](AtariFrames& self, int picture) { return self.frames.translate(picture); }, "picture"_a)
      .def("learn", [](AtariFrames& self, int picture) { self.frames.learn(picture); }, "picture"_a)
      .def("shift", [](AtariFrames& self, bool of_both) { self.frames.shift(of_both); }, "of_both"_a)
      .def("push", [](AtariFrames& self, bool of_both) { self.frames.push(of_both); }, "of_both"_a)
      .def("repeat", [](AtariFrames& self) { self.frames.repeat(); })
      .def("knows_colours", [](const AtariFrames& self) { return self.frames.knows_colours(); })
      .def("learn_colours",
           [](AtariFrames& self, nb::handle picture) {
             const Contents contents(picture);
             if (contents.bytes().size() != 3 * self.sizes.screen_bytes())
               raise("ConfigError", "frames: expected red, green and blue of each pixel of the screen");
             self.frames.learn_colours(reinterpret_cast<const std::uint8_t*>(contents.bytes().data()));
           },
           "picture"_a)
      .def("draw",
           [](const AtariFrames& self) {
             nb::object picture = zeroed({self.sizes.height, self.sizes.width, 3});
             self.frames.draw(data_of<std::uint8_t>(picture));
             return picture;
           })
      .def("packed",
           [](AtariFrames& self) {
             const auto packed = self.frames.packed();
             return to_bytes(std::as_bytes(std::span(packed)));
           })
      .def("unpack",
           [](AtariFrames& self, nb::bytes packed) {
             const auto bytes = bytes_of(packed);
             if (!self.frames.unpack({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}))
               raise("StateError", "expected frames of the same sizes, got others");
           },
           "packed"_a);
  m.def("area_resize_fits", &AreaResize::fits, "height"_a, "width"_a, "new_height"_a, "new_width"_a,
        "Whether our area resize computes this size as OpenCV does.");
}

}  // namespace stepmill
