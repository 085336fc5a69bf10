// SPDX-License-Identifier: Apache-2.0
// Every case host against everything that says whether a VM can have a GPU: all of them say what the
// judgement of the GPU's unit says, in its words.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "host/claims/claimable_gpus.h"
#include "host/gpu_conditions.h"
#include "kubevirt-plugin/discovery/scanner.h"
#include "mdev/vgpu_inventory.h"
#include "policy/accelerators.h"
#include "tests/cli/run_program.h"
#include "tests/support/described_host.h"
#include "tests/support/must.h"
#include "vfio/judgement/judge.h"
#include "vfio/judgement/unit_facts.h"
#include "vgpu-dm/types/type_capacity.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::must;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using vfio::Blocks;
using vfio::Finding;
using vfio::PciAddress;

/// The obstacles of the case hosts, from reading the reports. Every other GPU has none.
const std::multimap<std::string, std::string>& obstacles() {
  static const std::multimap<std::string, std::string> kObstacles = {
      {"n1-reserved-region-direct", "0000:0a:00.0 reserved-region"},
      {"n2-asleep-and-off-the-bus", "0000:02:00.0 off-the-bus"},
      {"n12-device-tree-without-iommu", "0001:01:00.0 iommu-off"},
      {"n16-framebuffer-on-vfio", "0000:c3:00.0 framebuffer-on-vfio"},
      {"r01-gtx1660-peg-port", "0000:01:00.0 group-not-viable"},
      {"r02-b450-chipset-group", "0000:05:00.0 group-not-viable"},
      {"r02-b450-chipset-group", "0000:05:00.0 foreign-driver"},
      {"r06-gh200-no-iommu", "0009:01:00.0 iommu-off"},
      {"r08-amd-with-intel-iommu", "0000:01:00.0 iommu-off"},
      {"r17-unlocked-2070s-and-gtx980", "0000:07:00.0 boot-display"},
      {"r35-one-of-two-off-the-bus", "0000:01:00.0 off-the-bus"},
  };
  return kObstacles;
}

/// A host as one process that may see everything sees it.
class Judged {
 public:
  explicit Judged(const std::string& name) : tree_(name), host(tree_.path()) {
    rules = policy::default_accelerator_rules();
    node.inventory = must(vfio::scan(host));
    vfio::read_unit_facts(host, rules, node.inventory);
    std::vector<PciAddress> all;
    for (const auto& [address, function] : node.inventory.functions) all.push_back(address);
    vfio::wake_sleepers(host, all, node.inventory);
    node.vgpus = must(mdev::scan_vgpus(host, node.inventory, rules));
    stuck_ = {};
    node.findings = vfio::judge_all(node.inventory, rules, {.stuck = &stuck_, .fatal_errors = &errors_},
                                    {.all_shed = true});
  }
  std::string root() const { return tree_.path().string(); }
  json ask(std::vector<std::string> words) const {
    std::vector<std::string> all = {"--host-root", root()};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"-o", "json"});
    return json::parse(test::run_ferry(all).out, nullptr, false);
  }
  const vfio::PciFunction& of(const PciAddress& gpu) const { return *node.inventory.find(gpu); }

 private:
  test::DescribedHost tree_;
  std::set<std::string> stuck_;
  std::map<PciAddress, std::string> errors_;

 public:
  HostFs host;
  vfio::AcceleratorRules rules;
  host::ScannedNode node;
};

class JudgementMatrix : public testing::TestWithParam<std::string> {
 protected:
  Judged judged_{GetParam()};
};

std::string text_of(const Finding* finding) {
  return finding == nullptr ? std::string() : finding->text;
}

TEST_P(JudgementMatrix, FindsWhatTheReportSays) {
  std::multiset<std::string> found;
  for (const auto& [gpu, findings] : judged_.node.findings) {
    std::set<std::string> rules;
    for (const Finding& finding : findings)
      if (finding.answer == vfio::Answer::yes) rules.insert(std::string(vfio::rule(finding.rule).name));
    for (const std::string& rule : rules) found.insert(gpu.text() + " " + rule);
  }
  std::multiset<std::string> expected;
  const auto [begin, end] = obstacles().equal_range(GetParam());
  for (auto one = begin; one != end; ++one) expected.insert(one->second);
  EXPECT_EQ(found, expected);
}

TEST_P(JudgementMatrix, IsWhatThePluginListsByItsScan) {
  plugin::ResourceRules rules;
  rules.accelerators = judged_.rules;
  rules.domain = "nvidia.com";
  plugin::Scanner scanner(judged_.host, rules);
  const plugin::ResourceSet scan = must(scanner.scan());
  std::map<std::string, std::string> problems;  // of each listed function; empty: healthy
  for (const auto& resource : scan.resources)
    for (const auto& device : resource.devices) problems[device.id] = device.problem;
  for (const auto& left_out : scan.not_advertised) problems.try_emplace(left_out.id, left_out.reason);
  for (const auto& [gpu, findings] : judged_.node.findings) {
    if (!vfio::on_vfio_driver(judged_.of(gpu)) || gpu.domain > 0xffff) continue;
    EXPECT_EQ(problems[gpu.text()], text_of(vfio::obstacle_to(findings, Blocks::advertise))) << gpu.text();
  }
}

TEST_P(JudgementMatrix, IsWhatHostdReportsOfGpusThatArePassedThrough) {
  std::map<PciAddress, policy::Mode> desired;
  for (const auto& [gpu, findings] : judged_.node.findings) desired[gpu] = policy::Mode::passthrough;
  host::GpuConditions conditions;
  host::add_unready(judged_.node, desired, conditions);
  for (const auto& [gpu, findings] : judged_.node.findings) {
    if (!vfio::on_vfio_driver(judged_.of(gpu))) continue;
    const Finding* obstacle = vfio::obstacle_to(findings, Blocks::ready);
    ASSERT_EQ(conditions.contains(gpu), obstacle != nullptr) << gpu.text();
    if (obstacle != nullptr) {
      EXPECT_THAT(conditions.at(gpu).reasons, testing::ElementsAre(obstacle->text));
    }
  }
}

TEST_P(JudgementMatrix, IsWhatClaimsGet) {
  std::map<PciAddress, policy::AllowedDevices> for_dra;
  std::set<PciAddress> dra;
  for (const auto& [gpu, findings] : judged_.node.findings) {
    for_dra.emplace(gpu, policy::AllowedDevices());
    dra.insert(gpu);
  }
  const policy::ModelNames models;
  const auto claimable = host::claimable_gpus(
      {.node = judged_.node, .models = models, .rules = judged_.rules, .for_dra = for_dra, .dra = dra});
  for (const api::ClaimableGpu& gpu : claimable) {
    const auto& findings = judged_.node.findings.at(gpu.address);
    const Finding* obstacle = vfio::obstacle_to(findings, Blocks::prepare);
    const bool sick = obstacle != nullptr && vfio::rule(obstacle->rule).of_the_device;
    // A GPU with GPU instances (MIG) goes to no VM whole, and they are no row: claims alone end them.
    const mdev::VgpuGpu* const vgpus = judged_.node.vgpus.find(gpu.address);
    const bool has_instances = vgpus != nullptr && vgpu::has_instances(*vgpus);
    EXPECT_EQ(gpu.whole && gpu.health == api::GpuHealth::ready,
              obstacle == nullptr && gpu.reason.empty() && !has_instances)
        << gpu.address.text() << ": " << gpu.reason;
    if (sick || (obstacle != nullptr && gpu.types.empty())) {
      EXPECT_EQ(gpu.reason, obstacle->text) << gpu.address.text();
    }
  }
}

TEST_P(JudgementMatrix, IsWhatAPlanRefuses) {
  for (const auto& [gpu, findings] : judged_.node.findings) {
    std::vector<std::string> words = {"vfio", "plan", "--force"};
    const auto units = vfio::units_of(judged_.node.inventory, {gpu}, {});
    for (const PciAddress& one : units.front().functions)
      if (judged_.node.findings.contains(one)) words.insert(words.end(), {"--device", one.text()});
    const json plan = judged_.ask(words);
    std::vector<std::string> reasons;
    for (const json& result : plan.value("results", json::array()))
      for (const json& reason : result.value("reasons", json::array())) reasons.push_back(reason);
    std::vector<std::string> expected;
    for (const Finding* obstacle : vfio::obstacles_to(findings, Blocks::bind))
      if (!vfio::rule(obstacle->rule).of_a_change) expected.push_back(obstacle->text);
    EXPECT_THAT(reasons, IsSupersetOf(expected)) << gpu.text();
    // Its functions go only by name, and their vGPUs by their own verb.
    if (expected.empty() && judged_.of(gpu).sriov_numvfs == 0 &&
        judged_.node.vgpus.find(gpu)->devices.empty()) {
      EXPECT_THAT(reasons, testing::IsEmpty()) << gpu.text();
    }
  }
}

TEST_P(JudgementMatrix, IsWhatStatusShows) {
  const json status = judged_.ask({"status"});
  for (const json& shown : status.at("accelerators")) {
    const PciAddress gpu = must(PciAddress::parse(shown.at("address").get<std::string>()));
    const auto& findings = judged_.node.findings.at(gpu);
    for (const Finding& finding : findings) {
      const auto& of = vfio::rule(finding.rule);
      // Status wakes no function, and leaves out a screen that a person may give up.
      if (finding.answer != vfio::Answer::yes || of.of_a_change ||
          judged_.of(gpu).bus == vfio::BusLook::all_ones)
        continue;
      EXPECT_THAT(shown.at("findings"),
                  Contains(testing::ResultOf(
                      [](const json& one) { return one.at("text").get<std::string>(); }, finding.text)));
      EXPECT_NE(shown.at("condition").at("health"), "good") << gpu.text();
    }
    if (vfio::on_vfio_driver(judged_.of(gpu)) && vfio::obstacle_to(findings, Blocks::allocate) == nullptr) {
      EXPECT_EQ(shown.at("condition").at("word"), "free") << gpu.text();
    }
  }
}

TEST_P(JudgementMatrix, IsWhatDoctorChecks) {
  const json doctor = judged_.ask({"doctor"});
  for (const auto& [gpu, findings] : judged_.node.findings) {
    for (const Finding& finding : findings) {
      const auto& of = vfio::rule(finding.rule);
      if (finding.answer != vfio::Answer::yes || of.check.empty() ||
          judged_.of(gpu).bus == vfio::BusLook::all_ones)
        continue;
      const auto& checks = doctor.at("checks");
      const auto check = std::ranges::find_if(checks, [&](const json& one) {
        return one.at("id") == std::string(of.check) && one.at("subject") == gpu.text();
      });
      ASSERT_NE(check, checks.end()) << of.check;
      EXPECT_EQ(check->at("verdict"), of.warns ? "warn" : "fail") << gpu.text() << " " << of.check;
      EXPECT_THAT(check->at("found").get<std::string>(), HasSubstr(finding.text));
    }
  }
}

TEST_P(JudgementMatrix, IsWhatAssertCompares) {
  for (const auto& [gpu, findings] : judged_.node.findings) {
    if (!vfio::on_vfio_driver(judged_.of(gpu))) continue;
    const auto policy = judged_.host.root() / "policy.yaml";
    std::ofstream(policy) << "version: v2\npolicies:\n  p:\n  - {address: '" << gpu.text()
                          << "', mode: passthrough}\n";
    const json compared = judged_.ask({"assert", "-f", policy.string(), "-c", "p"});
    const Finding* obstacle = vfio::obstacle_to(findings, Blocks::ready);
    for (const json& one : compared.at("gpus")) {
      if (one.at("address") != gpu.text()) continue;
      EXPECT_EQ(one.at("agrees").get<bool>(), obstacle == nullptr) << gpu.text();
      EXPECT_THAT(one.at("difference").get<std::string>(), HasSubstr(text_of(obstacle)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CaseHosts, JudgementMatrix, testing::ValuesIn(test::described_hosts()),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::erase_if(
                               name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace ferry::cli
