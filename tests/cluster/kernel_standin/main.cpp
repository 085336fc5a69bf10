// SPDX-License-Identifier: Apache-2.0
// usage: kernel-standin MOUNTPOINT NODES GATE
// The fake kernel (tests/support/fake_kernel.h) as a file system, so that `ferry hostd` itself can act on it:
// a write to its sysfs returns when its effect is there, or with the kernel's errno. Until SIGTERM.
//
//   MOUNTPOINT  becomes the sysfs of a machine with a 4090, whose audio shares its group 11, and a T4, which
//               can be divided, in group 12; all on their usual drivers
//   NODES       a /dev/vfio: a group's node comes and goes there with its binding, a stand-in
//   GATE        who holds a flock of this file has all writes wait, as a driver may that takes its time
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fuse3/fuse.h>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kCardGroup = 11;
constexpr unsigned kTeslaGroup = 12;

// Whoever takes a GPU back holds its group's node meanwhile, so that these can be opened: as /dev/zero and
// /dev/full, which nobody else keeps open. Behind the other groups' there is nothing.
constexpr unsigned kMemoryMajor = 1;
constexpr unsigned kFirstMinor = 100;
dev_t number_of_node(unsigned group) {
  constexpr unsigned kZero = 5;
  constexpr unsigned kFull = 7;
  if (group == kCardGroup) return makedev(kMemoryMajor, kZero);
  if (group == kTeslaGroup) return makedev(kMemoryMajor, kFull);
  return makedev(kMemoryMajor, kFirstMinor + group);
}

class Machine {
 public:
  Machine(fs::path nodes, fs::path gate) : nodes_(std::move(nodes)), gate_(std::move(gate)), mdev_(kernel_) {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:2684", "10de:1eb8"}});
    kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel_.add_function({.address = "0000:01:00.0", .group = kCardGroup, .driver = "nvidia"});
    // Registers, and a BAR as large as the next power of two above its memory: no table has that of a 4090.
    kernel_.file("sys/bus/pci/devices/0000:01:00.0/resource",
                 "0x00000000fb000000 0x00000000fbffffff 0x0000000000040200\n"
                 "0x0000004000000000 0x00000047ffffffff 0x000000000014220c\n");
    kernel_.add_function(kinds::kAudio, "0000:01:00.1", kCardGroup, "snd_hda_intel");
    kernel_.add_function(kinds::kTeslaT4Board, "0000:02:00.0", kTeslaGroup, "nvidia");
    mdev_.add_parent("0000:02:00.0");
    show_nodes();
  }

  /// Of a path as the file system is asked for it.
  fs::path file(const char* path) const { return kernel_.root() / relative(path); }
  std::mutex& mutex() { return mutex_; }

  int write(const char* path, std::string_view value) {
    wait_at_the_gate();
    const std::lock_guard lock(mutex_);
    const auto written = kernel_.write_attribute(as_the_bus_has_it(path), value);
    show_nodes();
    return written ? static_cast<int>(value.size()) : -written.error().code.value();
  }

 private:
  static fs::path relative(std::string_view path) { return fs::path("sys") / fs::path(path).relative_path(); }

  /// Links are followed before a file system is asked; the fake kernel knows a device by its link.
  static fs::path as_the_bus_has_it(std::string_view path) {
    constexpr std::string_view kDevices = "/devices/pci0000:00/";
    if (path.starts_with(kDevices)) return fs::path("sys/bus/pci/devices") / path.substr(kDevices.size());
    return relative(path);
  }

  void wait_at_the_gate() const {
    const int gate = ::open(gate_.c_str(), O_RDONLY | O_CLOEXEC);
    if (gate < 0) return;
    ::flock(gate, LOCK_SH);
    ::close(gate);
  }

  static bool is_group(const std::string& name) {
    return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
  }

  void show_nodes() const {
    for (const auto& entry : fs::directory_iterator(nodes_)) {
      const std::string name = entry.path().filename();
      if (is_group(name) && !kernel_.exists(fs::path("dev/vfio") / name)) fs::remove(entry.path());
    }
    for (const auto& name : kernel_.list("dev/vfio").value_or(std::vector<std::string>())) {
      const fs::path node = nodes_ / name;
      if (is_group(name) && !fs::exists(node))
        ::mknod(node.c_str(), S_IFCHR | 0600, number_of_node(static_cast<unsigned>(std::stoul(name))));
    }
  }

  const fs::path nodes_;
  const fs::path gate_;
  FakeKernel kernel_;
  FakeMdev mdev_;
  std::mutex mutex_;
};

Machine& machine() {
  return *static_cast<Machine*>(::fuse_get_context()->private_data);
}

// --- what is asked of a file system; each answers with a negative errno, or 0, or a count
// -------------------

int answer(int of_a_call) {
  return of_a_call < 0 ? -errno : of_a_call;
}

int get_attributes(const char* path, struct stat* out, fuse_file_info* /*open*/) {
  const std::lock_guard lock(machine().mutex());
  return answer(::lstat(machine().file(path).c_str(), out));
}

int read_link(const char* path, char* out, std::size_t size) {
  const std::lock_guard lock(machine().mutex());
  const auto length = ::readlink(machine().file(path).c_str(), out, size - 1);
  if (length < 0) return -errno;
  out[length] = '\0';
  return 0;
}

int read_folder(const char* path, void* out, fuse_fill_dir_t add, off_t /*offset*/, fuse_file_info* /*open*/,
                fuse_readdir_flags /*flags*/) {
  const std::lock_guard lock(machine().mutex());
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(machine().file(path), error))
    add(out, entry.path().filename().c_str(), nullptr, 0, fuse_fill_dir_flags{});
  return -error.value();
}

int read_file(const char* path, char* out, std::size_t size, off_t offset, fuse_file_info* /*open*/) {
  const std::lock_guard lock(machine().mutex());
  const int file = ::open(machine().file(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return -errno;
  const int result = answer(static_cast<int>(::pread(file, out, size, offset)));
  ::close(file);
  return result;
}

int write_file(const char* path, const char* value, std::size_t size, off_t /*offset*/,
               fuse_file_info* /*open*/) {
  return machine().write(path, {value, size});
}

void* begin(fuse_conn_info* /*connection*/, fuse_config* config) {
  // What a name leads to is asked anew each time, and what is read is read now.
  config->entry_timeout = 0;
  config->attr_timeout = 0;
  config->negative_timeout = 0;
  config->direct_io = 1;
  return ::fuse_get_context()->private_data;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  constexpr int kWords = 4;
  if (argc != kWords) {
    fmt::print(stderr, "usage: {} MOUNTPOINT NODES GATE\n", argv[0]);
    return 2;
  }
  ferry::test::Machine machine(argv[2], argv[3]);
  fuse_operations operations{};
  operations.init = ferry::test::begin;
  operations.getattr = ferry::test::get_attributes;
  operations.readlink = ferry::test::read_link;
  operations.readdir = ferry::test::read_folder;
  operations.read = ferry::test::read_file;
  operations.write = ferry::test::write_file;
  std::string name = "kernel-standin";
  std::string foreground = "-f";
  std::array<char*, 3> words = {name.data(), foreground.data(), argv[1]};
  return ::fuse_main(static_cast<int>(words.size()), words.data(), &operations, &machine);
}
