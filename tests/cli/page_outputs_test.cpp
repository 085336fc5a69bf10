// SPDX-License-Identifier: Apache-2.0
// The output that pages show below a `kubectl ferry` command is the program's, on a cluster at that step.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/composed_clusters.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/support/http_standin.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::gpu_node;
using test::HttpAnswer;
using test::kWholeL40s;
using test::launcher;
using test::ReceivedRequest;
using test::vmi;

const std::filesystem::path kSource = FERRY_SOURCE;
constexpr const char* kState = "gpu-ferry.io/state";
constexpr const char* kPolicy = "gpu-ferry.io/policy";
constexpr const char* kWorkload = "nvidia.com/gpu.workload.config";
constexpr const char* kQuarterL40s = "nvidia.com/NVIDIA_L40S-12Q";
constexpr const char* kHalfL40s = "nvidia.com/NVIDIA_L40S-24Q";

json passthrough_node() {
  return gpu_node("gpu-1", {{kWorkload, "vm-passthrough"}, {kState, "ready"}}, {{kWholeL40s, 2}});
}

json as_in_the_page(json pod, const std::string& name) {
  pod["metadata"]["name"] = name;
  pod["metadata"]["namespace"] = "ferry";
  for (json& container : pod["spec"]["containers"]) container["image"] = "registry.example/ferry:0.1.0";
  return pod;
}

json agent() {
  return as_in_the_page(test::agent_pod("gpu-1", {}), "ferry-agent-m9d4c");
}

json hostd() {
  return as_in_the_page(test::host_pod("gpu-1", "hostd"), "ferry-7xk2p");
}

json plugin() {
  return as_in_the_page(test::host_pod("gpu-1", "plugin"), "ferry-plugin-t5w8z");
}

/// The claim of the VM of docs/dra.md.
json claim() {
  json out;
  out["metadata"] = {{"name", "virt-launcher-claimed-gpu-h7x2p-gpu-r4k9d"}, {"namespace", "gpu-demo"}};
  out["status"]["allocation"]["devices"]["results"] = {{{"request", "gpu"},
                                                        {"driver", "gpu-ferry.io"},
                                                        {"pool", "gpu-1/gpu-ferry"},
                                                        {"device", "whole-0000-65-00-0"}}};
  out["status"]["reservedFor"] = {{{"resource", "pods"}, {"name", "virt-launcher-claimed-gpu-h7x2p"}}};
  return out;
}

/// The node of docs/quickstart.md, in the page's order; then those of docs/faq.md, policy.md and dra.md.
std::vector<kubectl::ClusterObjects> steps() {
  auto kata_node = passthrough_node();
  kata_node["status"]["capacity"]["nvidia.com/pgpu"] = "2";
  kata_node["status"]["allocatable"]["nvidia.com/pgpu"] = "2";
  kata_node["status"]["allocatable"][kWholeL40s] = "1";
  auto refused = gpu_node("gpu-1", {{kWorkload, "container"}, {kState, "blocked"}}, {{kWholeL40s, 1}});
  refused["status"]["allocatable"][kWholeL40s] = "0";
  refused["metadata"]["annotations"]["gpu-ferry.io/last-error"] =
      "0000:17:00.0 (AD102GL [L40S]): 0000:17:00.0 is in use: pod gpu-demo/virt-launcher-gpu-vm-x7k2p holds "
      "nvidia.com/AD102GL_L40S (allocated by the kubelet); delete the pod first";
  const auto vm_pod = launcher("gpu-demo", "gpu-vm", "gpu-1", {{kWholeL40s, 1}});
  const auto vm = vmi("gpu-demo", "gpu-vm", "gpu-1", {kWholeL40s});
  const auto vgpu_node = gpu_node("gpu-1",
                                  {{kWorkload, "vm-vgpu"},
                                   {"nvidia.com/vgpu.config", "L40S-12Q"},
                                   {"nvidia.com/vgpu.config.state", "success"},
                                   {kState, "ready"}},
                                  {{kQuarterL40s, 8}});
  const auto kata_pod =
      test::kata_pod("gpu-demo", "gpu-pod", "gpu-1", {{"nvidia.com/pgpu", 1}}, "kata-nvidia-gpu");
  std::vector<kubectl::ClusterObjects> out;
  const auto add = [&out](const json& node, std::vector<json> pods, std::vector<json> vmis) {
    pods.insert(pods.end(), {agent(), hostd(), plugin()});
    kubectl::ClusterObjects& step = out.emplace_back();
    step.nodes.push_back(node);
    step.pods = std::move(pods);
    step.vmis = std::move(vmis);
  };
  add(passthrough_node(), {}, {});
  add(passthrough_node(), {vm_pod}, {vm});
  add(vgpu_node, {launcher("gpu-demo", "vgpu-vm", "gpu-1", {{kQuarterL40s, 1}})},
      {vmi("gpu-demo", "vgpu-vm", "gpu-1", {kQuarterL40s})});
  add(kata_node, {kata_pod}, {});
  add(refused, {vm_pod}, {vm});
  add(gpu_node("gpu-1", {{kWorkload, "container"}, {kState, "ready"}}, {}), {}, {});
  add(gpu_node("gpu-1", {{kWorkload, "vm-vgpu"}, {"nvidia.com/vgpu.config", "L40S-24Q"}, {kState, "ready"}},
               {{kHalfL40s, 4}}),
      {}, {});
  add(gpu_node("gpu-1", {{kPolicy, "one-for-vms"}, {kState, "ready"}}, {{kWholeL40s, 1}}), {}, {});
  add(gpu_node("gpu-1", {{kPolicy, "second-for-claims"}, {kState, "ready"}}, {}), {}, {});
  out.back().claims = {claim()};
  return out;
}

/// A command of a ```console block with the lines below it.
struct ShownOutput {
  std::string page;
  test::CommandWords words;  ///< behind `kubectl ferry`
  std::string output;
};

std::vector<ShownOutput> shown_outputs(const std::string& page) {
  std::vector<ShownOutput> out;
  bool console = false;
  bool ours = false;
  for (const std::string& line : test::lines_of(kSource / page)) {
    if (line.starts_with("```")) {
      console = line == "```console";
      ours = false;
    } else if (console && line.starts_with("$ ")) {
      const auto commands = test::commands_in(line, "kubectl");
      ours = !commands.empty() && !commands[0].empty() && commands[0][0] == "ferry";
      if (ours) out.push_back({page, {commands[0].begin() + 1, commands[0].end()}, {}});
    } else if (ours) {
      out.back().output += line + "\n";
    }
  }
  return out;
}

class PageOutputs : public testing::Test {
 protected:
  PageOutputs() {
    folder_.file("config", fmt::format("current-context: main\n"
                                       "contexts: [{{name: main, context: {{cluster: c, user: u}}}}]\n"
                                       "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n"
                                       "users: [{{name: u, user: {{token: a-token}}}}]\n",
                                       server_.address()));
  }
  std::string output(const kubectl::ClusterObjects& step, const test::CommandWords& words) {
    now_ = &step;
    return test::run_kubectl_ferry(words,
                                   {"KUBECONFIG=" + (folder_.path() / "config").string(), "COLUMNS=120"})
        .out;
  }

 private:
  HttpAnswer answer(const ReceivedRequest& seen) const {
    const auto list = [](const std::vector<json>& items) {
      return HttpAnswer{
          .headers = {"Content-Type: application/json"},
          .body = json{{"kind", "List"}, {"metadata", json::object()}, {"items", items}}.dump()};
    };
    json permitted = {{"kind", "KubeVirt"}, {"metadata", {{"name", "kubevirt"}, {"namespace", "kubevirt"}}}};
    json& devices = permitted["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"];
    devices.push_back({{"pciVendorSelector", "10DE:26B9"},
                       {"resourceName", kWholeL40s},
                       {"externalResourceProvider", true}});
    if (seen.path.starts_with("/api/v1/nodes?")) return list(now_->nodes);
    if (seen.path.starts_with("/api/v1/pods?")) return list(now_->pods);
    if (seen.path.starts_with("/apis/kubevirt.io/v1/virtualmachineinstances?")) return list(now_->vmis);
    if (seen.path.starts_with("/apis/kubevirt.io/v1/kubevirts?")) return list({permitted});
    if (seen.path.starts_with("/apis/resource.k8s.io/v1/resourceclaims?")) return list(now_->claims);
    return {.status = 404, .body = "404 page not found\n"};
  }

  const kubectl::ClusterObjects* now_ = nullptr;
  test::ScratchDirectory folder_;
  test::HttpStandin server_{[this](const ReceivedRequest& seen) { return answer(seen); }};
};

TEST_F(PageOutputs, AreThoseOfTheProgram) {
  const std::vector<kubectl::ClusterObjects> all = steps();
  std::vector<ShownOutput> shown = shown_outputs("docs/quickstart.md");
  for (const char* const page :
       {"README.md", "docs/faq.md", "docs/policy.md", "docs/vgpu.md", "docs/dra.md"}) {
    std::vector<ShownOutput> of_page = shown_outputs(page);
    EXPECT_THAT(of_page, testing::SizeIs(1)) << page;
    for (ShownOutput& one : of_page) shown.push_back(std::move(one));
  }
  std::vector<bool> met(all.size());
  for (const ShownOutput& one : shown) {
    std::vector<std::string> printed;
    for (std::size_t step = 0; step < all.size(); ++step) {
      printed.push_back(output(all[step], one.words));
      if (printed.back() != one.output) continue;
      met[step] = true;
      break;
    }
    EXPECT_THAT(printed, testing::Contains(one.output))
        << one.page << ": " << fmt::format("{}", one.words[0]);
  }
  EXPECT_THAT(met, testing::Each(true)) << "each step is shown";
}

}  // namespace
}  // namespace ferry::cli
