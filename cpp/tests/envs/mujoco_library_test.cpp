// MujocoLibrary on libraries that report errors as MuJoCo 3 and MuJoCo 4 do (fake_mujoco.cpp).
#include "envs/mujoco/library.h"

#include <dlfcn.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace stepmill::mujoco_library_test {

struct Fake {
  std::string path;
  void* handle;

  explicit Fake(const char* file) : path(file), handle(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}
  template <class F>
  F get(const char* name) const {
    return reinterpret_cast<F>(dlsym(handle, name));
  }
  const MujocoLibrary& library() const { return MujocoLibrary::of(path); }
};

const Fake& three() {
  static const Fake fake(FAKE_MUJOCO_3);
  return fake;
}
const Fake& four() {
  static const Fake fake(FAKE_MUJOCO_4);
  return fake;
}

// What a call says that fails; empty if it does not.
template <class F>
std::string message_of(F call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

std::string message_of_step(const MujocoLibrary& library, int model, double* data, int times) {
  return message_of([&] { library.step(&model, data, times); });
}

TEST(the_functions_are_called) {
  for (const Fake* fake : {&three(), &four()}) {
    double data[4] = {};
    const int model = 0;
    fake->library().reset_data(&model, data);
    fake->library().forward(&model, data);
    fake->library().step(&model, data, 5);
    CHECK(data[0] == 5.0);
    CHECK(data[1] == 1.0);
    CHECK(data[2] == 1.0);
    CHECK(data[3] == 1.0);
  }
}

TEST(an_error_is_an_exception_and_the_next_call_works) {
  for (const Fake* fake : {&three(), &four()})
    for (int round = 0; round < 100; ++round) {
      double data[4] = {};
      CHECK(message_of_step(fake->library(), 3, data, 5) == "MuJoCo: step 3 failed");
      CHECK(data[0] == 3.0);
      CHECK(data[3] == 0.0);
      const int model = 0;
      fake->library().reset_data(&model, data);
      CHECK(message_of_step(fake->library(), 0, data, 2) == "");
      CHECK(data[0] == 2.0);
    }
}

TEST(a_warning_does_not_stop_a_step) {
  for (const Fake* fake : {&three(), &four()}) {
    double data[4] = {};
    CHECK(message_of_step(fake->library(), -2, data, 5) == "");
    CHECK(data[0] == 5.0);
    CHECK(data[3] == 1.0);
  }
}

TEST(warnings_outside_of_our_calls_are_written_as_before) {
  int& written = *three().get<int*>("fake_default_warnings");
  const int before = written;
  double data[4] = {};
  CHECK(message_of_step(three().library(), -1, data, 1) == "");
  CHECK(written == before);
  three().get<void (*)(const char*, ...)>("mju_warning")("from elsewhere");
  CHECK(written == before + 1);
}

TEST(a_thread_that_listens_is_given_its_own_warnings) {
  int& written = *three().get<int*>("fake_default_warnings");
  const int before = written;
  const auto warn = three().get<void (*)(const char*, ...)>("mju_warning");
  three().library().listen();
  warn("one");
  std::thread([&] { warn("of another thread"); }).join();
  double data[4] = {};
  CHECK(message_of_step(three().library(), -1, data, 1) == "");  // of an env: not for those who listen
  warn("two");
  const std::vector<std::string> heard = MujocoLibrary::heard();
  CHECK(heard.size() == 2u);
  CHECK(heard.at(0) == "one");
  CHECK(heard.at(1) == "two");
  CHECK(written == before + 1);
  CHECK(MujocoLibrary::heard().empty() == true);
}

void other_handler(const char*) {}

TEST(the_handler_of_others_is_put_back) {
  using Handler = void (*)(const char*);
  const auto set = three().get<void (*)(Handler)>("_mjPRIVATE__set_tls_error_fn");
  const auto get = three().get<Handler (*)()>("_mjPRIVATE__get_tls_error_fn");
  set(other_handler);
  for (const int fails_at : {0, 1}) {
    double data[4] = {};
    (void)message_of_step(three().library(), fails_at, data, 1);
    CHECK((get() == other_handler) == true);
  }
  set(nullptr);
}

TEST(each_thread_gets_its_own_errors) {
  for (const Fake* fake : {&three(), &four()}) {
    const MujocoLibrary& library = fake->library();
    std::vector<std::thread> threads;
    for (int i = 1; i <= 8; ++i)
      threads.emplace_back([&library, i] {
        const std::string expected = "MuJoCo: step " + std::to_string(i) + " failed";
        for (int round = 0; round < 500; ++round) {
          double data[4] = {};
          CHECK(message_of_step(library, i, data, 20) == expected);
        }
      });
    for (auto& thread : threads) thread.join();
  }
}

TEST(a_file_that_is_not_loaded_is_refused) {
  const std::string message = message_of([] { MujocoLibrary::of("/no/such/libmujoco.so"); });
  CHECK((message.find("not loaded") != std::string::npos) == true);
}

TEST(a_library_without_the_functions_is_refused) {
  const std::string message = message_of([] { MujocoLibrary::of("libm.so.6"); });
  CHECK((message.find("mj_resetData") != std::string::npos) == true);
}

}  // namespace stepmill::mujoco_library_test
