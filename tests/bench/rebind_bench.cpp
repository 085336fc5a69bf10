// SPDX-License-Identifier: Apache-2.0
// How much applying a planned bind or unbind costs beyond its writes: records, a writing process, the reading
// back and all, against the same writes of the same values in the same order and nothing else, by a process
// that has waited as long. The looks before either do not count. Runs on a real kernel, as root, and leaves
// each function on the driver that it had.
//
// usage: rebind_bench [--tight] ADDRESS...: accelerators that are not on vfio
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "host/usage/nvidia_driver.h"
#include "host/usage/use_probes.h"
#include "hostfs/host_writer.h"
#include "policy/accelerators.h"
#include "tests/bench/bare_writer.h"
#include "tests/bench/pairs.h"
#include "tests/support/must.h"
#include "vfio/bind/rebind_apply.h"

namespace ferry::test {
namespace {

AttributeWrite write_of(const vfio::Step& step) {
  const std::string address = step.address.text();
  const auto driver = [&](const char* file) {
    return AttributeWrite{.path = fmt::format("sys/bus/pci/drivers/{}/{}", step.value, file),
                          .value = address};
  };
  switch (step.kind) {
    case vfio::Step::Kind::set_override:
      return {.path = fmt::format("sys/bus/pci/devices/{}/driver_override", address),
              .value = step.value.empty() ? "\n" : step.value};
    case vfio::Step::Kind::unbind:
      return driver("unbind");
    case vfio::Step::Kind::bind:
      return driver("bind");
    case vfio::Step::Kind::probe:
      return {.path = "sys/bus/pci/drivers_probe", .value = address};
    case vfio::Step::Kind::quiesce:
    case vfio::Step::Kind::load_module:
    case vfio::Step::Kind::resume:
      break;
  }
  throw std::runtime_error("not a plain write: " + step.text() + "; is vfio-pci loaded?");
}

/// The accelerators and what binds and unbinds them.
class Node {
 public:
  explicit Node(std::span<char*> addresses) {
    for (const char* address : addresses)
      request_.accelerators.push_back(must(vfio::PciAddress::parse(address)));
  }
  /// What `ferry vfio` does between its lock and its report, with a writer of its own.
  void apply(vfio::Direction direction) {
    SpawningWriter writer(host_);
    host::NvidiaUnbindLock lock(host_, writer);
    const auto outcome = must(vfio::apply_rebinds(context(&writer, &lock), request_, direction));
    took_ = outcome.applied;
    for (const vfio::RebindResult& result : outcome.results) {
      if (result.status != vfio::RebindResult::Status::done)
        throw std::runtime_error(result.error ? result.error->message : "a group was not changed");
    }
  }
  /// Of the last apply(): what the units took.
  std::chrono::nanoseconds took() const { return took_; }
  std::vector<AttributeWrite> writes(vfio::Direction direction) {
    std::vector<AttributeWrite> out;
    SpawningWriter reader(host_);
    const auto preview = must(vfio::preview_rebinds(context(&reader, nullptr), request_, direction));
    if (!preview.plan.refusals.empty())
      throw std::runtime_error(preview.plan.refusals.front().reasons.front());
    for (const vfio::Rebind& rebind : preview.plan.rebinds) {
      for (const vfio::Step& step : rebind.steps) out.push_back(write_of(step));
    }
    return out;
  }
  std::size_t functions() { return vfio::concerned(must(vfio::scan(host_)), request_.accelerators).size(); }

 private:
  vfio::RebindContext context(HostWriter* writer, vfio::DriverLock* lock) {
    return {.host = &host_,
            .writer = writer,
            .probe = probe_.get(),
            .rules = policy::default_accelerator_rules(),
            .on_step = {},
            .driver_lock = lock};
  }
  HostFs host_;
  // All but the kubelet, of which the node has none.
  std::unique_ptr<vfio::UseProbe> probe_ = host::all_use_probes(
      host_, policy::default_accelerator_rules(),
      []() -> Result<std::vector<vfio::PodDevice>> { return std::vector<vfio::PodDevice>{}; });
  vfio::RebindRequest request_;
  std::chrono::nanoseconds took_{};
};

int run(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  const bool tight = argc > 1 && std::string_view(arguments[1]) == "--tight";
  Node node(arguments.subspan(tight ? 2 : 1));
  const std::size_t functions = node.functions();
  const auto to_vfio = node.writes(vfio::Direction::to_vfio);
  node.apply(vfio::Direction::to_vfio);
  const auto back = node.writes(vfio::Direction::back);
  node.apply(vfio::Direction::back);

  BareWriter there_bare(to_vfio);
  BareWriter back_bare(back);
  std::chrono::nanoseconds bare{};
  Contest contest{.name = fmt::format("binding {} functions to vfio-pci", functions),
                  .baseline = fmt::format("their {} writes alone", to_vfio.size()),
                  .ours = [&] { node.apply(vfio::Direction::to_vfio); },
                  .theirs =
                      [&] {
                        node.writes(vfio::Direction::to_vfio);
                        bare = there_bare.write_all();
                      },
                  .ours_took = [&] { return node.took(); },
                  .theirs_took = [&] { return bare; },
                  .bound = 1.5,
                  .waits = true,
                  .passes = 3,
                  .between = [&] { write_all(back); }};
  const int there = run_contest(contest, argc, argv);
  write_all(to_vfio);
  contest.name = fmt::format("unbinding {} functions", functions);
  contest.baseline = fmt::format("their {} writes alone", back.size());
  contest.ours = [&] { node.apply(vfio::Direction::back); };
  contest.theirs = [&] {
    node.writes(vfio::Direction::back);
    bare = back_bare.write_all();
  };
  contest.between = [&] { node.apply(vfio::Direction::to_vfio); };
  const int again = run_contest(contest, argc, argv);
  node.apply(vfio::Direction::back);
  return there == EXIT_SUCCESS ? again : there;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == ferry::kHostActVerb) return ferry::host_act_main(argc, argv);
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
