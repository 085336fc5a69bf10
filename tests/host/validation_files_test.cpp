// SPDX-License-Identifier: Apache-2.0
#include "host/validation_files.h"

#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/log_of.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using api::GpuState;
using api::NodePhase;
using policy::Mode;
using testing::HasSubstr;

policy::Policy policy_of(const std::vector<Mode>& modes) {
  policy::Policy out;
  for (const Mode mode : modes) out.items.emplace_back().mode = mode;
  return out;
}

api::AcceleratorStatus gpu(std::optional<Mode> desired, Mode mode, GpuState state = GpuState::ready,
                           std::size_t vgpus = 0) {
  api::AcceleratorStatus out;
  out.desired = desired;
  out.mode = mode;
  out.state = state;
  out.vgpus.assign(vgpus, {.id = "0000:02:00.4", .type = "L40S-12Q"});
  return out;
}

class ValidationFilesTest : public testing::Test {
 protected:
  static constexpr const char* kFolder = "run/nvidia/validations/";

  void keep(const std::optional<policy::Policy>& policy, NodePhase phase,
            std::vector<api::AcceleratorStatus> gpus = {}) {
    api::HostStatus status;
    status.phase = phase;
    status.accelerators = std::move(gpus);
    files_.keep(status, policy ? &*policy : nullptr);
  }
  /// "NAME=CONTENT" of each file, without the newlines.
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const std::string& name : host_.list(kFolder).value_or(std::vector<std::string>())) {
      std::string text = host_.read_file(kFolder + name).value_or("");
      if (text.ends_with('\n')) text.pop_back();
      out.push_back(name + "=" + text);
    }
    return out;
  }

  const policy::Policy passthrough_ = policy_of({Mode::passthrough});
  const std::vector<api::AcceleratorStatus> on_vfio_ = {gpu(Mode::passthrough, Mode::passthrough)};
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
  ValidationFiles files_{host_};
};

TEST_F(ValidationFilesTest, FollowTheStateOfTheHost) {
  const auto vgpus = [](std::size_t count) { return gpu(Mode::vgpu, Mode::vgpu, GpuState::ready, count); };
  const api::AcceleratorStatus foreign = gpu(std::nullopt, Mode::host, GpuState::unmanaged);
  const std::string to_vms = "workload-type=vm-passthrough";
  const std::string to_vgpus = "workload-type=vm-vgpu";
  struct Case {
    const char* about;
    std::optional<policy::Policy> policy;
    NodePhase phase;
    std::vector<api::AcceleratorStatus> gpus;
    std::vector<std::string> files;
  };
  const std::string vfio_ready = "vfio-pci-ready=gpu-ferry";
  const std::string vgpu_ready = "vgpu-devices-ready=gpu-ferry";
  for (const Case& one : std::vector<Case>{
           {"ready", passthrough_, NodePhase::ready, on_vfio_, {vfio_ready, to_vms}},
           {"beside a GPU that the policy leaves",
            passthrough_,
            NodePhase::ready,
            {on_vfio_[0], foreign},
            {vfio_ready, to_vms}},
           {"without a GPU, which the operator's validator calls ready",
            passthrough_,
            NodePhase::ready,
            {},
            {to_vms}},
           {"one is not on vfio",
            passthrough_,
            NodePhase::ready,
            {on_vfio_[0], gpu(Mode::passthrough, Mode::host, GpuState::pending)},
            {to_vms}},
           {"a change", passthrough_, NodePhase::applying, on_vfio_, {to_vms}},
           {"blocked", passthrough_, NodePhase::blocked, on_vfio_, {to_vms}},
           {"failed", passthrough_, NodePhase::failed, on_vfio_, {to_vms}},
           {"vGPUs", policy_of({Mode::vgpu}), NodePhase::ready, {vgpus(0), vgpus(2)}, {vgpu_ready, to_vgpus}},
           {"no vGPU", policy_of({Mode::vgpu}), NodePhase::ready, {vgpus(0)}, {to_vgpus}},
           {"vGPUs in a change", policy_of({Mode::vgpu}), NodePhase::applying, {vgpus(2)}, {to_vgpus}},
           {"both",
            policy_of({Mode::vgpu, Mode::passthrough}),
            NodePhase::ready,
            {vgpus(1), on_vfio_[0], foreign},
            {vfio_ready, vgpu_ready, to_vgpus}},
           {"containers", policy_of({Mode::host}), NodePhase::ready, {gpu(Mode::host, Mode::host)}, {}},
           {"no desired state", std::nullopt, NodePhase::idle, {foreign}, {}},
           {"an unreadable one", std::nullopt, NodePhase::failed, {foreign}, {}}}) {
    // From a node without files, and from each other state of a node.
    scratch_.remove(kFolder);
    keep(one.policy, one.phase, one.gpus);
    EXPECT_EQ(files(), one.files) << one.about;
    for (const policy::Policy& before : {passthrough_, policy_of({Mode::vgpu, Mode::passthrough})}) {
      keep(before, NodePhase::ready, {vgpus(1), on_vfio_[0]});
      keep(one.policy, one.phase, one.gpus);
      std::vector<std::string> expected = one.files;
      // Nothing says for which workload the node is, so the present word stays.
      if (!one.policy) expected.push_back(before.items.size() == 1 ? to_vms : to_vgpus);
      EXPECT_EQ(files(), expected) << one.about;
    }
  }
}

TEST_F(ValidationFilesTest, AreWrittenOnceForAllToRead) {
  const auto inode = [this](const char* name) {
    struct stat status {};
    EXPECT_EQ(::stat((scratch_.path() / kFolder / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0644U);
    return status.st_ino;
  };
  keep(passthrough_, NodePhase::ready, on_vfio_);
  const auto ready = inode("vfio-pci-ready");
  const auto workload = inode("workload-type");
  keep(passthrough_, NodePhase::ready, on_vfio_);
  EXPECT_EQ(inode("vfio-pci-ready"), ready);
  EXPECT_EQ(inode("workload-type"), workload);
}

TEST_F(ValidationFilesTest, OfOthersAreLeftAlone) {
  for (const char* name : {"driver-ready", ".driver-ctr-ready", "vfio-pci-ready", "vgpu-manager-ready"})
    scratch_.file(std::string(kFolder) + name, "theirs");
  scratch_.file(std::string(kFolder) + "vgpu-devices-ready", "");
  scratch_.file(std::string(kFolder) + "workload-type", "container\n");
  const auto theirs = files();
  for (const NodePhase phase : {NodePhase::ready, NodePhase::applying, NodePhase::failed})
    keep(policy_of({Mode::host}), phase);
  keep(std::nullopt, NodePhase::idle);
  EXPECT_EQ(files(), theirs);
  keep(passthrough_, NodePhase::ready, on_vfio_);
  EXPECT_EQ(host_.read_file(kVfioReady).value_or(""), "theirs") << "it counts";
  EXPECT_EQ(host_.read_file(kWorkloadType).value_or(""), "vm-passthrough\n");
}

TEST_F(ValidationFilesTest, FollowNoLink) {
  for (const char* const path : {kVfioReady, kWorkloadType, kVgpuReady}) {
    scratch_.remove(kFolder);
    for (const char* const content : {"gpu-ferry\n", "vm-vgpu\n", "secret"}) {
      scratch_.file("etc/target", content);
      scratch_.link(path, "/etc/target");
      keep(policy_of({Mode::vgpu, Mode::passthrough}), NodePhase::ready,
           {on_vfio_[0], gpu(Mode::vgpu, Mode::vgpu, GpuState::ready, 1)});
      EXPECT_EQ(files().size(), 3U) << "the other two are written";
      keep(policy_of({Mode::host}), NodePhase::ready);
      EXPECT_EQ(files().size(), 1U);
      EXPECT_TRUE(fs::is_symlink(scratch_.path() / path)) << path;
      EXPECT_EQ(host_.read_file("etc/target").value_or(""), content) << path;
    }
  }
}

TEST_F(ValidationFilesTest, ThatCannotBeReadAreLoggedOnceAndTheOthersKept) {
  scratch_.directory(kVfioReady);
  const test::LogOf said;
  for (int i = 0; i < 3; ++i) keep(passthrough_, NodePhase::ready, on_vfio_);
  const std::string log = said.text();
  EXPECT_THAT(log, HasSubstr("read /run/nvidia/validations/vfio-pci-ready: Is a directory"));
  EXPECT_EQ(log.find("Is a directory"), log.rfind("Is a directory"));
  EXPECT_EQ(host_.read_file(kWorkloadType).value_or(""), "vm-passthrough\n");
}

}  // namespace
}  // namespace ferry::host
