// SPDX-License-Identifier: Apache-2.0
// The commands of the pages are run, each as it stands there and in their order, on a node as the pages speak
// of.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using test::commands_in;
using test::CommandWords;
using test::lines_of;

const fs::path kSource = FERRY_SOURCE;

/// Those that are not run, by how they begin.
struct NotRun {
  std::string_view page;
  std::string_view command;
  std::string_view why;
};
constexpr std::array kNotRun = {
    NotRun{"docs/cc.md", "cc", "needs GPUs with registers: cc_verbs_test.cpp has them"},
    NotRun{"docs/demo.md", "plugin", "serves a kubelet until a signal ends it: scripts/demo runs it"},
    NotRun{"docs/demo.md", "hostd", "keeps the node until a signal ends it: scripts/demo runs it"},
    NotRun{"docs/kata-tasks.md", "kata",
           "asks a registry and restarts the container runtime: kata_verbs_test.cpp does, tests/node too"},
    NotRun{"docs/labels.md", "agent --node-name", "serves a node of an API server: tests/cluster runs it"},
    NotRun{"docs/metrics.md", "agent --node-name",
           "serves a node of an API server: tests/chart/prometheus_test.py runs it"},
    NotRun{"docs/sanitize.md", "history",
           "shows what hostd has recorded: tests/node/scenarios/sanitize.sh does"},
    NotRun{"docs/sanitize.md", "sanitize", "asks a hostd that runs: tests/node/scenarios/sanitize.sh does"},
    NotRun{"docs/troubleshooting.md", "--host-root gpu-1",
           "reads a copy of a host: capture_host_test.cpp makes one"}};

/// What these change the kernel answers, and this tree does not: what they would do is asked for. The whole
/// is done on the virtual node (tests/node/scenarios/demo).
bool changes_the_kernel(const CommandWords& words) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kChanges = {
      {{"vfio", "bind"}, {"vfio", "unbind"}, {"vgpu", "apply"}}};
  return words.size() > 1 &&
         std::ranges::find(kChanges, std::pair(std::string_view(words[0]), std::string_view(words[1]))) !=
             kChanges.end();
}

/// The node of docs/demo.md, and the files that the pages name, where a shell would stand.
class PageNode {
 public:
  explicit PageNode(const std::string& page) {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "bochs-drm", .ids = {"10de:2684"}});
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_function({.address = "0000:02:00.0", .group = 12, .driver = "bochs-drm"});
    kernel_.add_function({.address = "0000:03:00.0", .ids = "10de:2204", .group = 13});
    kernel_.add_function({.address = "0000:06:00.0",
                          .ids = "10de:1eb8",
                          .subsystem_ids = "10de:12a2",
                          .class_code = 0x030200,
                          .group = 15,
                          .driver = "nvidia"});
    mdev_.add_parent("0000:06:00.0");
    kernel_.file("dev/vfio/vfio", "");
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    const fs::path demo = kSource / "tests/node/scenarios/demo";
    for (const char* name : {"node.yaml", "vgpu-config.yaml"}) copy(demo / name, name);
    copy(kSource / "configs/vgpu-config.yaml", "vgpu-profiles.yaml");
    copy(kSource / "configs/examples/policy.yaml", "policies.yaml");
    if (page == "docs/agent.md")  // whose node is asked for a policy
      keep("node.yaml", "kind: Node\nmetadata: {name: n1, labels: {gpu-ferry.io/policy: mixed}}\n");
  }

  test::ProgramResult run(CommandWords words) const {
    for (std::string& word : words)
      if (fs::exists(folder_.path() / word)) word = (folder_.path() / word).string();
    if (changes_the_kernel(words)) words.emplace_back("--dry-run");
    words.insert(words.begin(), {"--host-root", kernel_.root().string()});
    return test::run_ferry(words);
  }
  /// As the shell does with `> NAME`.
  void keep(const std::string& name, const std::string& text) const { folder_.file(name, text); }

 private:
  void copy(const fs::path& from, const char* to) const { fs::copy_file(from, folder_.path() / to); }

  test::ScratchDirectory folder_;
  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
};

/// "# 0" behind a command says how it ends; else it does what it is for, refuses, or finds something.
void expect_end(const std::string& line, const CommandWords& words, const test::ProgramResult& result) {
  const std::regex reported(R"(# (\d)\s*$)");
  std::smatch found;
  if (std::regex_search(line, found, reported)) {
    EXPECT_EQ(result.status, std::stoi(found[1])) << line << '\n' << result.err;
    return;
  }
  std::set<int> ends = {0, 4};
  if (words[0] == "doctor") ends.insert(1);
  EXPECT_TRUE(ends.contains(result.status)) << line << ": " << result.status << '\n' << result.err;
}

std::vector<fs::path> pages() {
  std::vector<fs::path> out = {kSource / "README.md", kSource / "SECURITY.md", kSource / "images/README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "docs"))
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  return out;
}

TEST(PageCommands, AreRun) {
  std::set<std::string_view> met;  // of those that are not, by why
  std::size_t run = 0;
  for (const fs::path& page : pages()) {
    const std::string name = fs::relative(page, kSource).string();
    const PageNode node(name);
    bool fenced = false;
    for (const std::string& line : lines_of(page)) {
      if (line.starts_with("```")) fenced = !fenced;
      if (!fenced && !line.starts_with("    ")) continue;
      for (const CommandWords& words : commands_in(line)) {
        const std::string command = fmt::format("{}", fmt::join(words, " "));
        const auto* const why = std::ranges::find_if(
            kNotRun, [&](const NotRun& one) { return one.page == name && command.starts_with(one.command); });
        if (why != kNotRun.end()) {
          met.insert(why->why);
          continue;
        }
        SCOPED_TRACE(name);
        ASSERT_FALSE(words.empty()) << line;
        const auto result = node.run(words);
        ++run;
        expect_end(line, words, result);
        std::smatch into;
        if (std::regex_search(line, into, std::regex(R"(> (\S+))"))) node.keep(into[1], result.out);
      }
    }
  }
  EXPECT_GE(run, 10U);
  for (const NotRun& one : kNotRun) EXPECT_TRUE(met.contains(one.why)) << one.page << " has no such command";
}

/// The lines below `$ COMMAND` in a page, to the next command or the end of the block.
std::string shown_below(const fs::path& page, std::string_view command) {
  std::string out;
  bool inside = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("$ ") || line.starts_with("```"))
      inside = line.starts_with("$ ") && line.ends_with(command);
    else if (inside)
      out += line + "\n";
  }
  return out;
}

/// A file that a page shows below its name.
std::string shown_file(const fs::path& page, const std::string& name) {
  std::string out;
  bool inside = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) inside = false;
    if (inside) out += line + "\n";
    if (line == "# " + name) inside = true;
  }
  return out;
}

// The node of docs/quickstart.md: two L40S, on their driver and then on vfio-pci.
TEST(PageCommands, PrintWhatTheQuickStartShows) {
  const fs::path page = kSource / "docs/quickstart.md";
  for (const std::string driver : {"nvidia", "vfio-pci"}) {
    test::FakeKernel kernel;
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nvidia", .ids = {"10de:26b9"}});
    for (const unsigned group : {17U, 65U}) {
      kernel.add_function({.address = fmt::format("0000:{}:00.0", group),
                           .ids = "10de:26b9",
                           .class_code = 0x030200,
                           .group = group,
                           .driver = driver});
    }
    kernel.file("dev/vfio/vfio", "");
    kernel.directory("proc/1/fd");
    const auto run = [&](const char* verb) {
      return test::run_ferry({"--host-root", kernel.root().string(), verb});
    };
    if (driver == "nvidia") {
      EXPECT_EQ(run("status").out, shown_below(page, "-- ferry --host-root=/host status"));
    } else {
      EXPECT_EQ(run("kubevirt-cr").out, shown_file(page, "permit.yaml"));
      EXPECT_EQ(run("kubevirt-cr").out,
                shown_file(kSource / "README.md", "kubectl edit kubevirt -n kubevirt kubevirt"));
    }
  }
}

// The node that docs/kata.md prepares, with Kata's archive unpacked.
TEST(PageCommands, PrintTheChecksThatTheKataPageShows) {
  test::FakeKernel kernel;
  kernel.add_function({.address = "0000:17:00.0", .ids = "10de:26b9", .class_code = 0x030200, .group = 17});
  for (const char* const path :
       {"dev/kvm", "dev/vhost-vsock", "dev/vhost-net", "opt/kata/bin/containerd-shim-kata-v2",
        "var/lib/kubelet/pod-resources/kubelet.sock"})
    kernel.file(path, "");
  kernel.file("opt/kata/VERSION", "4.1.0\n");
  kernel.file("var/lib/kubelet/config.yaml",
              "featureGates: {KubeletPodResourcesGet: true}\nruntimeRequestTimeout: 20m\n");
  const auto result =
      test::run_ferry({"--host-root", kernel.root().string(), "doctor", "-v", "--for", "kata"});
  EXPECT_EQ(result.status, 0) << result.err;
  // The shim of this tree does not start, so that no runtime is named: the file VERSION has the release.
  const std::string shown = shown_below(kSource / "docs/kata.md", "$ ferry doctor -v --for kata");
  EXPECT_EQ(result.out, std::regex_replace(shown, std::regex("Kata's Go runtime"), "Kata"));
}

// The claim of docs/dra.md. Its GPU is not in this tree, so that no driver has to react.
TEST(PageCommands, ListAndReleaseTheClaimAsTheDraPageShows) {
  const fs::path page = kSource / "docs/dra.md";
  test::FakeKernel kernel;
  kernel.add_driver({.name = "nvidia", .ids = {"10de:26b9"}});
  kernel.add_function({.address = "0000:17:00.0",
                       .ids = "10de:26b9",
                       .class_code = 0x030200,
                       .group = 17,
                       .driver = "nvidia"});
  kernel.directory("proc/1/fd");
  kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  kernel.file("proc/sys/kernel/random/boot_id", "b\n");
  const std::string uid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711";
  kernel.file("run/ferry/hostd/claims.json", fmt::format(R"({{"version": 1, "boot_id": "b", "claims": [
      {{"uid": "{}", "namespace": "gpu-demo", "name": "gpu-r4k", "phase": "done", "devices": [
        {{"gpu": "0000:65:00.0", "type": null, "placement": null, "was_on_vfio": true,
          "gpus": [{{"address": "0000:65:00.0", "functions": 0}}], "mdev_uuid": null,
          "function": "0000:65:00.0", "nodes": []}}]}}], "missing_functions": []}})",
                                                         uid));
  const std::string root = kernel.root().string();
  EXPECT_EQ(test::run_ferry({"--host-root", root, "claims", "list"}).out,
            shown_below(page, "$ ferry claims list"));
  const auto released = test::run_ferry({"--host-root", root, "claims", "release", uid});
  EXPECT_EQ(released.out, shown_below(page, "$ ferry claims release " + uid)) << released.err;
}

// Its vGPU types, once the driver has made the virtual functions.
TEST(PageCommands, ListTheTypesThatTheQuickStartShows) {
  test::FakeKernel kernel;
  test::FakeMdev mdev(kernel);
  kernel.add_driver({.name = "nvidia", .ids = {"10de:26b9"}, .sriov = true});
  kernel.add_function({.address = "0000:17:00.0",
                       .ids = "10de:26b9",
                       .class_code = 0x030200,
                       .group = 17,
                       .driver = "nvidia",
                       .totalvfs = 32});
  mdev.add_vf_parents("0000:17:00.0");
  kernel.enable_vfs("0000:17:00.0", 32);
  const auto printed = test::run_ferry({"--host-root", kernel.root().string(), "vgpu", "types"}).out;
  const std::string shown =
      shown_below(kSource / "docs/quickstart.md", "-- ferry --host-root=/host vgpu types");
  std::istringstream lines(shown);
  int held = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line == "...") continue;
    EXPECT_THAT(printed, testing::HasSubstr(line + "\n"));
    ++held;
  }
  EXPECT_GE(held, 3);
}

}  // namespace
}  // namespace ferry::cli
