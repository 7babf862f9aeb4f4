#include "core/process/fork_mark.h"

#include <sys/mman.h>

#include "core/memory/mapping.h"

namespace stepmill {

ForkMark::ForkMark() {
  void* page = mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, page_size(), MADV_WIPEONFORK) != 0)
    fail("a page that a fork wipes");
  page_ = static_cast<volatile unsigned char*>(page);
  *page_ = 1;
}

ForkMark::~ForkMark() { munmap(const_cast<unsigned char*>(page_), page_size()); }

}  // namespace stepmill
