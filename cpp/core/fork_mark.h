// Knows whether this process is the one that made it, or was forked off it: at the cost of reading a byte.
//
// The kernel wipes the page in a child, however that was made (os.fork, a raw system call), so neither a handler nor a
// system call is needed.
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
