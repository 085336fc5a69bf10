// SPDX-License-Identifier: Apache-2.0
// How much making and removing vGPUs by a profile costs beyond the writes: plans, a writing process, the
// reading back and all, against the same writes of the same values, one after the other, and nothing else, by
// a process that has waited as long. The looks before either do not count. Runs on a real kernel, as root, on
// GPUs without vGPUs, and leaves them so. usage: vgpu_bench [--tight] PROFILE-FILE
#include <cstdlib>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "host/usage/use_probes.h"
#include "hostfs/host_writer.h"
#include "policy/accelerators.h"
#include "policy/kubernetes_files.h"
#include "tests/bench/bare_writer.h"
#include "tests/bench/pairs.h"
#include "tests/support/must.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::test {
namespace {

// Those of vendor-specific VFIO have no UUID that would tell that they are ours.
const vgpu::Removal kAll{.gpus = {}, .foreign = true};

/// Keeps what is written through it.
class RecordingWriter final : public HostWriter {
 public:
  explicit RecordingWriter(HostWriter& real) : real_(&real) {}
  Result<> write(const std::filesystem::path& relative, std::string_view value,
                 std::chrono::milliseconds deadline) override {
    auto done = real_->write(relative, value, deadline);
    const std::scoped_lock lock(mutex_);
    if (done) writes.push_back({.path = relative, .value = std::string(value)});
    return done;
  }
  Result<> load_module(std::string_view name, std::chrono::milliseconds deadline) override {
    return real_->load_module(name, deadline);
  }
  Result<> unload_module(std::string_view name, std::chrono::milliseconds deadline) override {
    return real_->unload_module(name, deadline);
  }
  Result<> run(const HostCommand& command, std::chrono::milliseconds deadline) override {
    return real_->run(command, deadline);
  }
  Result<std::string> read(const std::filesystem::path& relative,
                           std::chrono::milliseconds deadline) override {
    return real_->read(relative, deadline);
  }

  std::vector<AttributeWrite> writes;

 private:
  HostWriter* real_;
  std::mutex mutex_;
};

class Node {
 public:
  explicit Node(const std::string& file)
      : profile_(must(vgpu::select_profile(must(policy::read_profile_file(file)), std::nullopt))) {}

  /// What `ferry vgpu` does between its lock and its report, with a writer of its own.
  void make() {
    SpawningWriter writer(host_);
    took_ = check(must(vgpu::apply_profile(host(writer), profile_)));
  }
  void remove() {
    SpawningWriter writer(host_);
    took_ = check(must(vgpu::remove_vgpus(host(writer), kAll)));
  }
  /// What comes before either.
  void look_at_all() {
    SpawningWriter writer(host_);
    must(vgpu::look(host(writer), {&profile_, 1}));
  }
  /// Of the last one: what the GPUs took.
  std::chrono::nanoseconds took() const { return took_; }
  std::vector<AttributeWrite> writes_that_make() {
    SpawningWriter writer(host_);
    RecordingWriter recorder(writer);
    check(must(vgpu::apply_profile(host(recorder), profile_)));
    return recorder.writes;
  }
  std::vector<AttributeWrite> writes_that_remove() {
    SpawningWriter writer(host_);
    RecordingWriter recorder(writer);
    check(must(vgpu::remove_vgpus(host(recorder), kAll)));
    return recorder.writes;
  }

 private:
  vgpu::VgpuHost host(HostWriter& writer) {
    return {.host = host_,
            .writer = writer,
            .uses = *probe_,
            .rules = policy::default_accelerator_rules(),
            .node = must(vgpu::node_identity(host_))};
  }
  static std::chrono::nanoseconds check(const vgpu::VgpuOutcome& outcome) {
    for (const vgpu::GpuOutcome& gpu : outcome.gpus) {
      if (gpu.error) throw std::runtime_error(gpu.error->message);
    }
    return outcome.applied;
  }

  HostFs host_;
  // All but the kubelet, of which the node has none.
  std::unique_ptr<vfio::UseProbe> probe_ = host::all_use_probes(
      host_, policy::default_accelerator_rules(),
      []() -> Result<std::vector<vfio::PodDevice>> { return std::vector<vfio::PodDevice>{}; });
  vgpu::Profile profile_;
  std::chrono::nanoseconds took_{};
};

int run(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  Node node(arguments.back());
  const auto making = node.writes_that_make();
  const auto removing = node.writes_that_remove();
  if (making.size() != removing.size()) throw std::runtime_error("not as many were removed as made");

  BareWriter makes(making);
  BareWriter removes(removing);
  std::chrono::nanoseconds bare{};
  Contest contest{.name = fmt::format("making {} vGPUs", making.size()),
                  .baseline = "their writes alone",
                  .ours = [&] { node.make(); },
                  .theirs =
                      [&] {
                        node.look_at_all();
                        bare = makes.write_all();
                      },
                  .ours_took = [&] { return node.took(); },
                  .theirs_took = [&] { return bare; },
                  .bound = 1.3,
                  .waits = true,
                  .passes = 1,
                  .between = [&] { write_all(removing); }};
  const int made = run_contest(contest, argc, argv);
  write_all(making);
  contest.name = fmt::format("removing {} vGPUs", removing.size());
  // 0.96 to 1.46 were seen. Ferry also holds the group of each mediated device, so that no VM starts on it;
  // what that costs has not been measured.
  contest.bound = 1.5;
  contest.ours = [&] { node.remove(); };
  contest.theirs = [&] {
    node.look_at_all();
    bare = removes.write_all();
  };
  contest.between = [&] { write_all(making); };
  const int removed = run_contest(contest, argc, argv);
  write_all(removing);
  return made == EXIT_SUCCESS ? removed : made;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == ferry::kHostActVerb) return ferry::host_act_main(argc, argv);
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
