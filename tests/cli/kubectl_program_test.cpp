// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry` as a user meets it: the program that kubectl finds, a stand-in for kubectl, and an HTTP
// server for the cluster.
#include "kubectl/kubectl_program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/version.h"
#include "kubectl/kubectl_child.h"
#include "tests/cli/composed_clusters.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/support/http_standin.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::HttpAnswer;
using test::ReceivedRequest;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kPath = "PATH=/usr/bin:/bin";

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class KubectlFerry : public testing::Test {
 protected:
  KubectlFerry() {
    folder_.file("config", fmt::format("current-context: main\n"
                                       "contexts: [{{name: main, context: {{cluster: c, user: u}}}}, "
                                       "{{name: other, context: {{cluster: gone, user: u}}}}]\n"
                                       "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}, "
                                       "{{name: gone, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n"
                                       "users: [{{name: u, user: {{token: secret-token}}}}]\n",
                                       server_.address()));
  }
  test::ProgramResult run(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& more = {}) const {
    std::vector<std::string> environment = {"KUBECONFIG=" + (folder_.path() / "config").string()};
    environment.insert(environment.end(), more.begin(), more.end());
    return test::run_kubectl_ferry(arguments, environment);
  }
  HttpAnswer answer(const ReceivedRequest& seen) const {
    const auto list = [](const std::vector<json>& items) {
      return HttpAnswer{
          .headers = {"Content-Type: application/json"},
          .body = json{{"kind", "List"}, {"metadata", {{"resourceVersion", "7"}}}, {"items", items}}.dump()};
    };
    const auto& objects = test::composed_cluster("passthrough").objects;
    if (refuse_) return {.status = 403, .body = R"({"kind": "Status", "reason": "Forbidden", "code": 403})"};
    if (seen.path.starts_with("/api/v1/nodes?fieldSelector=&labelSelector=kubernetes.io%2Fhostname%3Dcpu-1&"))
      return list({objects.nodes.back()});
    if (seen.path.starts_with("/api/v1/nodes?fieldSelector=&")) return list(objects.nodes);
    if (seen.path.starts_with("/api/v1/nodes?fieldSelector=metadata.name%3Dgpu-1&"))
      return list({objects.nodes.front()});
    if (seen.path.starts_with("/api/v1/nodes?")) return list({});
    if (seen.path.starts_with("/api/v1/pods?")) return list(objects.pods);
    if (has_kubevirt_ && seen.path.starts_with("/apis/kubevirt.io/v1/kubevirts?"))
      return list({json{{"metadata", {{"name", "kubevirt"}, {"namespace", "kubevirt"}}}}});
    if (hides_kubevirts_ && seen.path.starts_with("/apis/kubevirt.io/v1/kubevirts?"))
      return {.status = 403, .body = R"({"kind": "Status", "reason": "Forbidden", "code": 403})"};
    if (seen.path.starts_with("/apis/kubevirt.io/v1/virtualmachineinstances?")) return list(objects.vmis);
    if (seen.path.starts_with("/apis/kubevirt.io/v1/namespaces/studio/virtualmachineinstances?")) {
      std::vector<json> named;
      for (const json& vmi : objects.vmis)
        if (seen.path.find("metadata.name%3D" + vmi["metadata"]["name"].get<std::string>() + "&") !=
            std::string::npos)
          named.push_back(vmi);
      for (json& vmi : named)
        if (pins_) vmi["spec"]["nodeSelector"] = {{"kubernetes.io/hostname", "cpu-1"}};
      return list(named);
    }
    return {.status = 404, .body = "404 page not found\n"};
  }

  /// A program that stands in for kubectl.
  std::string script(const std::string& lines) const {
    const auto program = folder_.path() / "kubectl";
    folder_.file("kubectl", "#!/bin/sh\n" + lines);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return program.string();
  }

  std::atomic<bool> refuse_ = false;
  std::atomic<bool> hides_kubevirts_ = false;
  std::atomic<bool> has_kubevirt_ = false;  ///< one that permits everything
  std::atomic<bool> pins_ = false;          ///< VMs to a node without GPUs
  test::ScratchDirectory folder_;
  test::HttpStandin server_{[this](const ReceivedRequest& seen) { return answer(seen); }};
};

TEST_F(KubectlFerry, ShowsTheCluster) {
  const auto list = run({"list"});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, AllOf(StartsWith("NODE   STATE"), HasSubstr("VM studio/render-b")));
  EXPECT_THAT(list.err, IsEmpty());
  const auto vms = run({"vms"});
  EXPECT_EQ(vms.status, 0) << vms.err;
  EXPECT_THAT(vms.out, HasSubstr("Scheduling"));
  const auto node = run({"node", "gpu-1"});
  EXPECT_EQ(node.status, 0) << node.err;
  EXPECT_THAT(node.out, HasSubstr("asked for: vm-passthrough"));
  EXPECT_EQ(run({"status", "gpu-1"}).out, node.out);
  for (const ReceivedRequest& seen : server_.seen()) {
    EXPECT_EQ(seen.method, "GET");
    EXPECT_EQ(seen.header("authorization"), "Bearer secret-token");
  }
}

TEST_F(KubectlFerry, ShowsTheChosenNodes) {
  const auto one = run({"list", "gpu-1"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("gpu-1"));
  EXPECT_THAT(run({"list", "gpu-11"}).err, HasSubstr("there is no node 'gpu-11'; did you mean 'gpu-1'?"));
  EXPECT_EQ(run({"list", "-l", "zone=a"}).status, 0);
  EXPECT_THAT(server_.seen().back().path, Not(HasSubstr("zone")));
  EXPECT_TRUE(std::ranges::any_of(server_.seen(), [](const ReceivedRequest& seen) {
    return seen.path.find("labelSelector=zone%3Da") != std::string::npos;
  }));
}

TEST_F(KubectlFerry, ExplainsAVm) {
  const auto vm = run({"doctor", "vm", "studio/render-c", "-v"});
  EXPECT_EQ(vm.status, 0) << vm.out << vm.err;
  EXPECT_THAT(vm.out, AllOf(StartsWith("VM studio/render-c: ready, with remarks"),
                            HasSubstr("vm-asks-for-gpus"), HasSubstr("has 1 free of")));
  EXPECT_EQ(run({"doctor", "vm", "studio/render-x"}).status, 2);
  pins_ = true;
  const auto pinned = run({"doctor", "vm", "studio/render-c"});
  EXPECT_EQ(pinned.status, 1) << pinned.out << pinned.err;
  EXPECT_THAT(pinned.out, HasSubstr("kubernetes.io/hostname=cpu-1"));
}

TEST_F(KubectlFerry, AsksNoServerAboutAWrongTarget) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"doctor", "vm"}, {"doctor", "gpu-1", "gpu-2"}, {"doctor", "vm", "a", "b"}}) {
    const auto result = run(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("doctor takes one node, or the word vm and one VM"));
  }
  EXPECT_EQ(run({"doctor", "vm", "--kubeconfig", "/none"}).err, run({"doctor", "vm"}).err);
  EXPECT_THAT(server_.seen(), IsEmpty());
}

TEST_F(KubectlFerry, SaysWhyNoKubevirtObjectIsThere) {
  const auto none = run({"kubevirt-cr"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("the cluster has no KubeVirt object"), HasSubstr("by its operator")));
  hides_kubevirts_ = true;
  const auto hidden = run({"kubevirt-cr"});
  EXPECT_EQ(hidden.status, 1);
  EXPECT_THAT(hidden.err, AllOf(HasSubstr("your role may not list KubeVirt objects"),
                                HasSubstr("let your role list `kubevirts`"), Not(HasSubstr("operator"))));
}

TEST_F(KubectlFerry, RefusesAWatchByItsName) {
  for (const char* const word : {"-w", "--watch"}) {
    const auto refused = run({"list", word});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, StartsWith("kubectl ferry: --watch: it is gone; `watch kubectl ferry list`"));
  }
  EXPECT_THAT(server_.seen(), IsEmpty());
}

TEST_F(KubectlFerry, ShowsMachinesTheSame) {
  const json as_json = json::parse(run({"list", "-o", "json"}).out, nullptr, false);
  EXPECT_EQ(as_json["nodes"][0]["resources"][0]["used"], 3);
  EXPECT_THAT(run({"-o", "yaml", "list"}).out, HasSubstr("used: 3\n"));
}

TEST_F(KubectlFerry, FitsTheTerminal) {
  EXPECT_THAT(run({"list"}, {"COLUMNS=60"}).out, HasSubstr("\n"));
  EXPECT_NE(run({"list"}, {"COLUMNS=60"}).out, run({"list"}).out);
}

TEST_F(KubectlFerry, PlansAndGathersAndChecks) {
  const auto plan = run({"plan", "gpu-1", "nvidia.com/gpu.workload.config=container"});
  EXPECT_EQ(plan.status, 1) << "ConfigMaps are not known to this server";
  EXPECT_THAT(plan.err, HasSubstr("ConfigMap in ferry"));
  const auto gathered = json::parse(run({"gather", "-n", "gpu-system"}).out, nullptr, false);
  EXPECT_EQ(gathered["nodes"].size(), 2U);
  EXPECT_TRUE(gathered["logs"].is_array());
  const auto doctor = run({"doctor", "gpu-1", "-v"});
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_THAT(doctor.out, StartsWith("node gpu-1: ready"));
  EXPECT_THAT(doctor.out, HasSubstr("pass     node-ready"));
}

TEST_F(KubectlFerry, SaysWhatIsWrong) {
  const auto no_node = run({"node", "gpu-11"});
  EXPECT_EQ(no_node.status, 2);
  EXPECT_THAT(no_node.err, HasSubstr("there is no node 'gpu-11'; did you mean 'gpu-1'?"));
  const auto no_server = run({"list", "--context", "nowhere"});
  EXPECT_EQ(no_server.status, 1);
  EXPECT_THAT(
      no_server.err,
      AllOf(
          StartsWith("error: "), HasSubstr("nowhere"),
          HasSubstr("kubectl ferry: list Node: kubectl has ended with status 2; its own message is above")));
  refuse_ = true;
  const auto refused = run({"list"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("hint: "), HasSubstr("list on nodes"), Not(HasSubstr("secret-token"))));
  EXPECT_THAT(refused.out, IsEmpty());
}

TEST_F(KubectlFerry, ShowsKubectlsOwnWords) {
  const auto result = run({"list", "--context", "other"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      result.err,
      AllOf(StartsWith("error: "), HasSubstr("kubectl ferry: list Node: kubectl has ended with status 1"),
            HasSubstr("https://127.0.0.1:1: GET /api/v1/nodes"),
            HasSubstr("hint: does `kubectl get nodes` work?"), Not(HasSubstr("secret-token"))));
  const std::string kubectl = script(
      "echo 'To sign in, open a page.' >&2\n"
      "echo 'Unable to connect to the server: getting credentials: exec: executable aws not found' >&2\n"
      "echo 'Install it.' >&2\nexit 1\n");
  const auto no_login = run({"list"}, {"KUBECTL=" + kubectl});
  EXPECT_EQ(no_login.status, 1);
  EXPECT_EQ(
      no_login.err,
      "To sign in, open a page.\n"
      "kubectl ferry: list Node: kubectl has ended with status 1: Unable to connect to the server: getting "
      "credentials: exec: executable aws not found\nInstall it.\n"
      "hint: does `kubectl get nodes` work?\n");
}

TEST_F(KubectlFerry, HandsFlagsOnToTheProgramThatIsNamed) {
  const std::string said = (folder_.path() / "said").string();
  const std::string kubectl = script("echo \"$@\" >> '" + said + "'\necho '{\"items\": []}'\n");
  const auto list = run({"list", "--context", "lab", "--as=admin", "--as-group", "a", "--as-group", "b", "-s",
                         "https://lab", "--insecure-skip-tls-verify"},
                        {"KUBECTL= " + kubectl + " kubectl "});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(content(said),
              StartsWith("kubectl get --raw /api/v1/nodes?fieldSelector=&labelSelector=&limit=200 --as=admin "
                         "--as-group=a --as-group=b --context=lab --insecure-skip-tls-verify=true "
                         "--server=https://lab\n"));
  EXPECT_EQ(run({"list", "--kubectl", kubectl + " by-option"}).status, 0);
  EXPECT_THAT(content(said), HasSubstr("\nby-option get --raw /api/v1/nodes?"));
}

TEST_F(KubectlFerry, SaysHowToNameAKubectlThatIsMissing) {
  const auto missing = run({"list"}, {"KUBECTL=no-such-kubectl"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.err,
            "kubectl ferry: there is no program 'no-such-kubectl'\n"
            "hint: install kubectl, or name it by --kubectl or the variable KUBECTL: oc, or 'k3s kubectl'\n");
}

TEST_F(KubectlFerry, ComparesAnotherNodesDevicesWithTheObject) {
  const std::string kubevirts = R"({"items": [{"metadata": {"name": "kv", "namespace": "virt",
    "resourceVersion": "7"}, "spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": [
    {"pciVendorSelector": "1:2", "resourceName": "a/b"}]}}}}]})";
  folder_.file("kubevirts", kubevirts);
  folder_.file("offered", R"({"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": [
    {"pciVendorSelector": "10DE:2684", "resourceName": "nvidia.com/X", "externalResourceProvider": true}]}}}})");
  const std::string kubectl = script("cat '" + (folder_.path() / "kubevirts").string() + "'\n");
  const std::vector<std::string> variables = {"KUBECTL=" + kubectl, kPath};
  const std::string offered = (folder_.path() / "offered").string();
  const auto lacks = run({"kubevirt-cr", "--check", offered}, variables);
  EXPECT_EQ(lacks.status, 3) << lacks.err;
  EXPECT_THAT(lacks.out, AllOf(StartsWith("KubeVirt virt/kv: does not permit all that this node offers\n"),
                               HasSubstr("nvidia.com/X (10DE:2684) is not permitted")));
  const auto patch = run({"kubevirt-cr", "--check", offered, "--patch"}, variables);
  EXPECT_EQ(patch.status, 0) << patch.err;
  const json merged = json::parse(patch.out);
  EXPECT_EQ(merged["metadata"]["resourceVersion"], "7");
  EXPECT_EQ(merged["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"].size(), 2U);
  EXPECT_EQ(run({"kubevirt-cr", "--patch"}, variables).status, 2);
  EXPECT_EQ(run({"kubevirt-cr", "--check", "/none"}, variables).status, 1);
  folder_.file("another", R"({"kind":"Node","spec":{}})");
  const auto another = run({"kubevirt-cr", "--check", (folder_.path() / "another").string()}, variables);
  EXPECT_EQ(another.status, 2);
  EXPECT_THAT(another.err, HasSubstr("is not what `ferry kubevirt-cr -o json` prints"));
}

TEST_F(KubectlFerry, AsksForSmallerPartsOfALargeList) {
  const std::string kubectl = script(
      "case $3 in *limit=100) echo '{\"items\": []}' ;;\n"
      "*) head -c 17000000 /dev/zero ;; esac\n");
  const auto list = run({"list"}, {"KUBECTL=" + kubectl, kPath});
  EXPECT_EQ(list.status, 0) << list.err;
}

// A stand-in in our own process: the limit is minutes.
TEST_F(KubectlFerry, EndsAKubectlThatHangs) {
  const std::string pid = (folder_.path() / "pid").string();
  const kubectl::Kubectl hangs{.program = {script("sleep 600 &\necho $! > '" + pid + "'\nwait\n")},
                               .limit = std::chrono::seconds(1)};
  const auto list = hangs.list({.kind = kube::kNodes});
  ASSERT_FALSE(list.has_value());
  EXPECT_EQ(list.error().code, Errc::unreachable);
  EXPECT_EQ(list.error().message, "list Node: kubectl has not ended within 1 s");
  EXPECT_EQ(hangs.default_namespace(), "default");
}

TEST_F(KubectlFerry, TakesTheNamespaceOfTheContext) {
  const kubectl::Kubectl kubectl{.program = {script("[ \"$1 $2\" = 'config view' ] && printf gpu\n")}};
  EXPECT_EQ(kubectl.default_namespace(), "gpu");
}

TEST_F(KubectlFerry, IsExplainedByItsHelp) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, {"lst"}, {"list", "--contxt", "x"}, {"node"}, {"list", "-o", "xml"}}) {
    const auto result = run(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, AllOf(StartsWith("kubectl ferry: "), HasSubstr("--help")));
  }
  EXPECT_THAT(run({"lst"}).err, HasSubstr("did you mean 'list'?"));
  EXPECT_THAT(run({"list", "--contxt", "x"}).err, HasSubstr("did you mean '--context'?"));
  const auto help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* const verb :
       {"list", "node", "vms", "plan", "doctor", "kubevirt-cr", "gather", "help", "version"})
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + verb));
  for (const char* const word : {"--version", "version"})
    EXPECT_EQ(run({word}).out, std::string("ferry ") + kVersion + "\n");
  EXPECT_EQ(run({"help", "list"}).out, run({"list", "--help"}).out);
  EXPECT_THAT(run({"get"}).err, HasSubstr("there is no verb 'get'; did you mean 'list'?"));
  EXPECT_THAT(run({"status"}).err, HasSubstr("kubectl ferry: name a node\n"));
  EXPECT_EQ(run({"help", "status"}).out, run({"node", "--help"}).out);
  EXPECT_THAT(run({"node"}).err, AllOf(HasSubstr("kubectl ferry: name a node\n"),
                                       HasSubstr("for example `kubectl ferry node gpu-1`")));
  EXPECT_THAT(run({"help", "lst"}).err, HasSubstr("there is no verb 'lst'; did you mean 'list'?"));
}

// --- What the pages show
// ------------------------------------------------------------------------------------------------

const std::filesystem::path kSource = FERRY_SOURCE;

std::vector<std::filesystem::path> pages() {
  std::vector<std::filesystem::path> out = {kSource / "README.md", kSource / "SECURITY.md",
                                            kSource / "images/README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource / "docs"))
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  return out;
}

/// The words behind `kubectl ferry`, of each in a line.
std::vector<test::CommandWords> plugin_commands_in(const std::string& line) {
  std::vector<test::CommandWords> out;
  for (const test::CommandWords& words : test::commands_in(line, "kubectl"))
    if (words.size() > 1 && words.front() == "ferry") out.emplace_back(words.begin() + 1, words.end());
  return out;
}

TEST_F(KubectlFerry, DoesWhatThePagesShow) {
  has_kubevirt_ = true;
  folder_.file("node.json", R"({"spec":{"configuration":{"permittedHostDevices":{}}}})");
  std::size_t ran = 0;
  for (const auto& page : pages()) {
    bool fenced = false;
    for (const std::string& line : test::lines_of(page)) {
      if (line.starts_with("```")) fenced = !fenced;
      if (!fenced && !line.starts_with("    ")) continue;
      for (test::CommandWords words : plugin_commands_in(line)) {
        for (std::string& word : words)
          if (std::filesystem::exists(folder_.path() / word)) word = (folder_.path() / word).string();
        ++ran;
        const auto result = run(words);
        EXPECT_EQ(result.status, 0) << page << ": " << line << '\n' << result.err;
        EXPECT_THAT(result.out, Not(IsEmpty())) << line;
      }
    }
  }
  EXPECT_GE(ran, 3U);
}

TEST(KubectlHelp, IsInPlainEnglish) {
  EXPECT_THAT(test::faults_of_help(kubectl::kubectl_commands()), IsEmpty());
}

// Those within a sentence or a table have words that stand for others.
TEST(KubectlPage, NamesCommandsThatAreUnderstood) {
  const CommandModel root = kubectl::kubectl_commands();
  std::size_t seen = 0;
  for (std::string line : test::lines_of(kSource / "docs/kubectl.md")) {
    for (auto at = line.find('`'); at != std::string::npos; at = line.find('`')) {
      line.erase(0, at + 1);
      const auto end = line.find('`');
      if (end == std::string::npos) break;
      for (const test::CommandWords& words : plugin_commands_in(line.substr(0, end))) {
        ++seen;
        EXPECT_THAT(test::problem_with(root, words), IsEmpty()) << line;
      }
      line.erase(0, end + 1);
    }
  }
  EXPECT_GE(seen, 6U);
}

}  // namespace
}  // namespace ferry::cli
