// A caller on a thread of its own, which is found asleep. It must be woken.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "tests/check.h"
#include "tests/process/process_driver.h"

namespace stepmill::test {

class SleepingCaller {
 public:
  explicit SleepingCaller(std::function<void()> receives)
      : thread_([this, receives = std::move(receives)] {
          id_ = gettid();
          try {
            receives();
          } catch (const Hang& error) {
            hang_ = error.what();
          }
        }) {}
  ~SleepingCaller() {
    if (thread_.joinable()) thread_.join();
  }
  SleepingCaller(const SleepingCaller&) = delete;
  SleepingCaller& operator=(const SleepingCaller&) = delete;

  void await_sleep() {
    until("the caller sleeps",
                [&] { return id_ != 0 && state_of("self/task/" + std::to_string(id_)) == 'S'; });
  }
  void join() {
    thread_.join();
    CHECK(hang_ == "");
  }

 private:
  std::atomic<pid_t> id_{0};
  std::string hang_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace stepmill::test
