// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_effects.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/vfio.h>
#include <set>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <utility>

#include "common/unique_fd.h"

namespace ferry::test {
namespace {

std::string filled_in(std::string text, const std::map<std::string, std::string>& names) {
  for (const auto& [name, value] : names) {
    const std::string key = "{" + name + "}";
    for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + value.size())) {
      text.replace(at, key.size(), value);
    }
  }
  EXPECT_EQ(text.find('{'), std::string::npos) << "this machine has no " << text;
  return text;
}

void check_fact(const EffectHost& machine, const EffectFact& fact) {
  const std::string path = filled_in(fact.path, machine.names);
  const std::string value = filled_in(fact.value, machine.names);
  switch (fact.kind) {
    case EffectFact::Kind::link_to:
      EXPECT_EQ(machine.host->link_name(path).value_or("(no link)"), value) << path;
      break;
    case EffectFact::Kind::reads:
      EXPECT_EQ(machine.host->read_attribute(path).value_or("(unreadable)"), value) << path;
      break;
    case EffectFact::Kind::present:
      EXPECT_TRUE(machine.host->exists(path)) << path;
      break;
    case EffectFact::Kind::absent:
      EXPECT_FALSE(machine.host->exists(path)) << path;
      break;
  }
}

Result<> write(const EffectHost& machine, const EffectWrite& what) {
  return machine.writer->write(filled_in(what.path, machine.names), filled_in(what.value, machine.names));
}

/// Of a link itself; 0: it is not there.
ino_t inode_of(const EffectHost& machine, const std::string& link) {
  const auto opened = machine.host->open(filled_in(link, machine.names), O_PATH | O_NOFOLLOW);
  struct stat status {};
  return opened && ::fstat(opened->get(), &status) == 0 ? status.st_ino : 0;
}

/// What a VM's process has open of a function; they are closed from the last to the first.
struct VfioUser {
  UniqueFd container;
  UniqueFd group;
  UniqueFd device;
};

// ABI: Documentation/driver-api/vfio.rst.
std::shared_ptr<void> open_by_vfio(const std::string& address) {
  namespace fs = std::filesystem;
  auto user = std::make_shared<VfioUser>();
  const fs::path group = fs::read_symlink("/sys/bus/pci/devices/" + address + "/iommu_group").filename();
  user->container = UniqueFd(::open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC));
  user->group = UniqueFd(::open(("/dev/vfio" / group).c_str(), O_RDWR | O_CLOEXEC));
  const int container = user->container.get();
  EXPECT_EQ(::ioctl(user->group.get(), VFIO_GROUP_SET_CONTAINER, &container), 0) << address;
  EXPECT_EQ(::ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU), 0) << address;
  user->device = UniqueFd(::ioctl(user->group.get(), VFIO_GROUP_GET_DEVICE_FD, address.c_str()));
  EXPECT_GE(user->device.get(), 0) << address;
  return user;
}

}  // namespace

void check_effect(const EffectHost& machine, const KernelEffect& effect) {
  std::set<ino_t> inodes = {0};
  for (const EffectWrite& step : effect.before) {
    const auto done = write(machine, step);
    ASSERT_TRUE(done) << "before: " << done.error().message;
    if (!effect.made_anew.empty()) inodes.insert(inode_of(machine, effect.made_anew));
  }
  auto device_user = effect.held.empty() ? nullptr : machine.hold(filled_in(effect.held, machine.names));
  const auto done = write(machine, effect.write);
  device_user.reset();
  if (effect.error == 0) {
    EXPECT_TRUE(done) << (done ? "" : done.error().message);
  } else {
    EXPECT_FALSE(done) << "succeeded";
    if (!done) {
      EXPECT_EQ(done.error().code, std::error_code(effect.error, std::generic_category()));
    }
  }
  for (const EffectFact& fact : effect.after) check_fact(machine, fact);
  if (!effect.made_anew.empty()) {
    EXPECT_GT(inodes.size(), 1U) << "it was never there before";
    EXPECT_TRUE(inodes.insert(inode_of(machine, effect.made_anew)).second) << effect.made_anew;
  }
  for (const EffectWrite& step : effect.restore) {
    const auto restored = write(machine, step);
    EXPECT_TRUE(restored) << "restore: " << (restored ? "" : restored.error().message);
  }
}

bool real_machine(std::map<std::string, std::string>& names) {
  const char* file = std::getenv("FERRY_EFFECTS_NAMES");
  if (file == nullptr) return false;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (const auto equals = line.find('='); equals != std::string::npos) {
      names[line.substr(0, equals)] = line.substr(equals + 1);
    }
  }
  return true;
}

bool check_on_real_machine(const KernelEffect& effect) {
  std::map<std::string, std::string> names;
  if (!real_machine(names)) return false;
  HostFs host("/");
  SpawningWriter writer(host);
  check_effect({.host = &host, .writer = &writer, .names = names, .hold = open_by_vfio}, effect);
  return true;
}

}  // namespace ferry::test
