// Knows whether this process made it or is a forked child, at the cost of reading one byte.
//
// The kernel wipes the page in a child, however the child was made (os.fork, a raw system call), so we need neither a
// handler nor a system call.
#pragma once

namespace stepmill {

class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  bool in_child() const { return *page_ == 0; }

 private:
  volatile unsigned char* page_;
};

}  // namespace stepmill
