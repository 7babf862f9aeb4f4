// Starts the game of a Doom env, in place of the game's own program: in a folder of its own, to end with its parent.
//
// ViZDoom starts a program that we name. We name a link to this one, in a folder that Python has made
// (src/stepmill/zoo/vizdoom/private_folder.py), and that has these links:
//
//   start     to this program
//   game      to the game's program
//   parent    "to" the number of the process that starts it
//   instance  made here: "to" the name that the game's shared memory has in this run
//
// The game writes into its working directory, which is that folder, and not the user's.

#include <csignal>
#include <cstdlib>
#include <cstring>

#include <climits>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

bool read_link(const char* name, char (&out)[PATH_MAX]) {
  const ssize_t length = readlink(name, out, sizeof(out) - 1);
  if (length <= 0) return false;
  out[length] = '\0';
  return true;
}

const char* instance_of(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "+viz_instance_id") == 0) return argv[i + 1];
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  static char folder[PATH_MAX], game[PATH_MAX], parent[PATH_MAX];
  std::strncpy(folder, argv[0], sizeof(folder) - 1);
  char* slash = std::strrchr(folder, '/');
  if (slash == nullptr) return 1;
  *slash = '\0';
  if (chdir(folder) != 0 || !read_link("game", game) || !read_link("parent", parent)) return 1;

  // The game waits for its controller forever, even for one that was killed.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != std::atoi(parent)) return 1;
  // Ctrl-C in a terminal reaches all of its processes. What it means is for the controller to say.
  std::signal(SIGINT, SIG_IGN);

  const char* instance = instance_of(argc, argv);
  if (instance == nullptr || symlink(instance, "instance") != 0) return 1;
  argv[0] = game;  // it looks for its data beside its program
  execv(game, argv);
  return 1;
}
