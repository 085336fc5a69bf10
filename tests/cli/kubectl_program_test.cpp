// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry` as a user meets it: the program that kubectl finds, and an HTTP server for the cluster.
#include "kubectl/kubectl_program.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/version.h"
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

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
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
    const std::string only = only_token_.load();
    if (!only.empty() && seen.header("authorization") != only)
      return {.status = 401, .body = R"({"kind": "Status", "reason": "Unauthorized", "code": 401})"};
    if (refuse_) return {.status = 403, .body = R"({"kind": "Status", "reason": "Forbidden", "code": 403})"};
    if (seen.path.find("&watch=1&") != std::string::npos) {
      if (refuses_watches_ && seen.path.starts_with("/api/v1/nodes?")) {
        if (seen.path.find("labelSelector=behind") != std::string::npos)
          return {.status = 405, .body = "a proxy refuses this\n"};
        return {.status = 403, .body = R"({"kind": "Status", "reason": "Forbidden", "code": 403})"};
      }
      return {.headers = {"Content-Type: application/json"}, .held = true};
    }
    if (seen.path.starts_with("/api/v1/nodes?fieldSelector=&")) {
      std::vector<json> nodes = objects.nodes;
      if (written_now_) nodes.front() = written(nodes.front());
      return list(nodes);
    }
    if (seen.path.starts_with("/api/v1/nodes?fieldSelector=metadata.name%3Dgpu-1&"))
      return list({objects.nodes.front()});
    if (seen.path.starts_with("/api/v1/nodes?")) return list({});
    if (seen.path.starts_with("/api/v1/pods?")) return list(objects.pods);
    if (hides_kubevirts_ && seen.path.starts_with("/apis/kubevirt.io/v1/kubevirts?"))
      return {.status = 403, .body = R"({"kind": "Status", "reason": "Forbidden", "code": 403})"};
    if (seen.path.starts_with("/apis/kubevirt.io/v1/virtualmachineinstances?")) return list(objects.vmis);
    if (seen.path.starts_with("/apis/kubevirt.io/v1/namespaces/studio/virtualmachineinstances?")) {
      std::vector<json> named;
      for (const json& vmi : objects.vmis)
        if (seen.path.find("metadata.name%3D" + vmi["metadata"]["name"].get<std::string>() + "&") !=
            std::string::npos)
          named.push_back(vmi);
      return list(named);
    }
    return {.status = 404, .body = "404 page not found\n"};
  }

  /// The Node after the agent has written labels, in the moment of `began_`.
  json written(json node) const {
    json manager = {{"time", began_}};
    manager["fieldsV1"]["f:metadata"]["f:labels"]["f:gpu-ferry.io/state"] = json::object();
    node["metadata"]["managedFields"] = json::array({manager});
    return node;
  }
  /// Sends a changed Node to all who watch them.
  void send_changed(json node, const std::string& version) {
    node["metadata"]["resourceVersion"] = version;
    server_.send_to_held("/api/v1/nodes?", json{{"type", "MODIFIED"}, {"object", node}}.dump() + "\n");
  }
  /// The lists of pods that were asked for.
  std::ptrdiff_t pod_lists() const {
    const auto seen = server_.seen();
    return std::ranges::count_if(seen, [](const ReceivedRequest& one) {
      return one.path.starts_with("/api/v1/pods?") && one.path.find("&watch=1&") == std::string::npos;
    });
  }

  /// A kubeconfig whose user has this `exec`, and the script that it runs.
  std::string exec_config(const std::string& exec, const std::string& script) {
    const auto program = folder_.path() / "ferry-login";
    folder_.file("ferry-login", "#!/bin/sh\n" + script);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    folder_.file("exec", fmt::format("current-context: c\n"
                                     "contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
                                     "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n"
                                     "users: [{{name: u, user: {{exec: {{{}}}}}}}]\n",
                                     server_.address(), exec));
    return (folder_.path() / "exec").string();
  }

  std::atomic<const char*> only_token_ = "";  ///< the only Authorization that is accepted; empty: each
  std::atomic<bool> refuse_ = false;
  std::atomic<bool> hides_kubevirts_ = false;
  /// Watches of Nodes get 403, as from a role, and those with the label `behind` get 405, as from a proxy.
  std::atomic<bool> refuses_watches_ = false;
  std::atomic<bool> written_now_ = false;  ///< the agent has written labels
  std::string began_ = utc_now();
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

TEST_F(KubectlFerry, WatchesNothingIfItsFirstReadFails) {
  const auto no_node = run({"list", "-w", "gpu-11"});
  EXPECT_EQ(no_node.status, 2);
  EXPECT_THAT(no_node.err, HasSubstr("there is no node 'gpu-11'"));
  refuse_ = true;
  const auto refused = run({"list", "-w"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.out, IsEmpty());
}

TEST_F(KubectlFerry, WatchPrintsAChangeAndNotAnAge) {
  const std::vector<std::string> environment = {"KUBECONFIG=" + (folder_.path() / "config").string()};
  const auto wide = folder_.path() / "wide";
  const auto yaml = folder_.path() / "yaml";
  test::RunningProgram in_wide("kubectl-ferry", {"list", "-w", "-o", "wide"}, environment, wide);
  test::RunningProgram in_yaml("kubectl-ferry", {"list", "-w", "-o", "yaml"}, environment, yaml);
  const auto watched = [this](const char* path) { return server_.held(path) == 2; };
  ASSERT_TRUE(in_yaml.until([&] { return watched("/api/v1/nodes?") && watched("/api/v1/pods?"); }));
  const json& node = test::composed_cluster("passthrough").objects.nodes.front();
  // Only the document and the ages show this.
  send_changed(written(node), "8");
  ASSERT_TRUE(in_yaml.until([&] { return count_of(content(yaml), "\n---\n") == 1; })) << content(yaml);
  json failed = written(node);
  failed["metadata"]["labels"]["gpu-ferry.io/state"] = "failed";
  send_changed(failed, "9");
  ASSERT_TRUE(in_wide.until([&] { return count_of(content(wide), "CHANGED") == 2; })) << content(wide);
  ASSERT_TRUE(in_yaml.until([&] { return count_of(content(yaml), "\n---\n") == 2; })) << content(yaml);
  in_wide.end_by(SIGTERM);
  in_yaml.end_by(SIGTERM);
  EXPECT_THAT(content(wide), HasSubstr("failed"));
  EXPECT_EQ(count_of(content(wide), "CHANGED"), 2U);
  EXPECT_EQ(pod_lists(), 4) << "each program lists them for its first look, and for its watch";
  for (const ReceivedRequest& seen : server_.seen()) {
    const bool lists = seen.path.find("&watch=1&") == std::string::npos;
    if (lists) {
      EXPECT_THAT(seen.path, HasSubstr("&limit=200"));
    }
  }
}

TEST_F(KubectlFerry, WatchReadsTheListAgainWhereAWatchIsRefused) {
  refuses_watches_ = true;
  const std::vector<std::string> environment = {"KUBECONFIG=" + (folder_.path() / "config").string()};
  const auto by_role = folder_.path() / "by-role";
  const auto by_proxy = folder_.path() / "by-proxy";
  test::RunningProgram forbidden("kubectl-ferry", {"list", "-w", "-o", "yaml"}, environment, by_role);
  test::RunningProgram behind("kubectl-ferry", {"list", "-w", "-o", "yaml", "-l", "behind"}, environment,
                              by_proxy);
  ASSERT_TRUE(forbidden.until([&] { return !content(by_role).empty(); }));
  ASSERT_TRUE(behind.until([&] { return !content(by_proxy).empty(); }));
  written_now_ = true;
  const auto printed = [](const std::filesystem::path& file) { return count_of(content(file), "\n---\n"); };
  ASSERT_TRUE(forbidden.until([&] { return printed(by_role) == 1; })) << content(by_role);
  ASSERT_TRUE(behind.until([&] { return printed(by_proxy) == 1; })) << content(by_proxy);
  forbidden.end_by(SIGTERM);
  behind.end_by(SIGTERM);
}

TEST_F(KubectlFerry, CompletesNamesOfTheCluster) {
  const std::vector<std::string> environment = {"KUBECONFIG=" + (folder_.path() / "config").string()};
  const auto completed = [&](const std::vector<std::string>& words) {
    return test::run_beside_ferry("kubectl_complete-ferry", words, environment);
  };
  EXPECT_EQ(completed({"node", "g"}).out, "gpu-1\n:4\n");
  EXPECT_EQ(completed({"doctor", "vm", "studio/render-a"}).out, "studio/render-a\n:4\n");
  refuse_ = true;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"node", "g"},
                                                {"node", "--context", "nowhere", ""},
                                                {"node", "--context", "other", ""}}) {
    const auto none = completed(words);
    EXPECT_EQ(none.status, 0);
    EXPECT_EQ(none.out, ":4\n");
    EXPECT_THAT(none.err, IsEmpty());
  }
}

TEST_F(KubectlFerry, CompletionLeavesNoLoginRunning) {
  const std::string pid = (folder_.path() / "pid").string();
  const std::string config = exec_config(
      "apiVersion: client.authentication.k8s.io/v1, command: ./ferry-login, interactiveMode: IfAvailable",
      fmt::format("echo $$ > '{}'\nexec /bin/sleep 600\n", pid));
  const auto none =
      test::run_beside_ferry("kubectl_complete-ferry", {"node", "--kubeconfig", config, ""}, {});
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.out, ":4\n");
  const std::string text = content(pid);
  ASSERT_THAT(text, Not(IsEmpty()));
  EXPECT_EQ(::kill(std::stoi(text), 0), -1) << "the program of the kubeconfig still runs";
  EXPECT_EQ(errno, ESRCH);
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
  EXPECT_THAT(plan.err, HasSubstr("ConfigMap in default"));
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
  EXPECT_EQ(no_server.status, 2);
  EXPECT_THAT(no_server.err, AllOf(StartsWith("kubectl ferry: "), HasSubstr("nowhere")));
  refuse_ = true;
  const auto refused = run({"list"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("hint: "), HasSubstr("list on nodes"), Not(HasSubstr("secret-token"))));
  EXPECT_THAT(refused.out, IsEmpty());
}

TEST_F(KubectlFerry, LogsInByTheProgramOfTheKubeconfig) {
  const std::string runs = (folder_.path() / "runs").string();
  const std::string config = exec_config(
      "apiVersion: client.authentication.k8s.io/v1, command: ./ferry-login, args: [get-token], "
      "interactiveMode: IfAvailable",
      fmt::format(
          "echo run >> '{0}'\n"
          "n=0; while read -r line; do n=$((n+1)); done < '{0}'\n"
          "echo \"$1: run $n\" >&2\n"
          "printf '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", '\n"
          "printf '\"status\": {{\"token\": \"token-%s\"}}}}' \"$n\"\n",
          runs));
  const auto list = run({"list", "--kubeconfig", config});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, StartsWith("NODE   STATE"));
  EXPECT_EQ(list.err, "get-token: run 1\n");
  for (const ReceivedRequest& seen : server_.seen())
    EXPECT_EQ(seen.header("authorization"), "Bearer token-1");

  // The first run of this command gives token-2, which the server refuses.
  only_token_ = "Bearer token-3";
  const auto again = run({"list", "--kubeconfig", config});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.err, "get-token: run 2\nget-token: run 3\n");
  only_token_ = "Bearer other";
  const auto refused = run({"list", "--kubeconfig", config});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, AllOf(StartsWith("get-token: run 4\nget-token: run 5\nkubectl ferry: "),
                                 HasSubstr("401"), Not(HasSubstr("run 6")), Not(HasSubstr("token-"))));
}

TEST_F(KubectlFerry, SaysWhyTheProgramOfTheKubeconfigGaveNothing) {
  const std::string config =
      exec_config("apiVersion: client.authentication.k8s.io/v1beta1, command: ./ferry-login",
                  "echo 'please log in' >&2; exit 7");
  const auto failed = run({"list", "--kubeconfig", config});
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(failed.err,
            "please log in\nkubectl ferry: " + config +
                ":4: users[0].user.exec: './ferry-login' has ended with status 7; its own message is above\n"
                "hint: `kubectl get nodes` runs the same program: does that work?\n");
  exec_config(
      "apiVersion: client.authentication.k8s.io/v1, command: no-such-login, interactiveMode: Never, "
      "installHint: 'Get it from example.com.'",
      "");
  const auto missing = run({"list", "--kubeconfig", config});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("there is no program 'no-such-login' in PATH"),
                                 HasSubstr("hint: Get it from example.com.\n")));
  folder_.file("kuberc", "credentialPluginPolicy: DenyAll\n");
  const auto denied =
      run({"list", "--kubeconfig", config}, {"KUBERC=" + (folder_.path() / "kuberc").string()});
  EXPECT_EQ(denied.status, 2);
  EXPECT_THAT(denied.err,
              HasSubstr("kuberc:1: credentialPluginPolicy: the string 'DenyAll' forbids the program"));
  EXPECT_THAT(server_.seen(), IsEmpty());
}

TEST_F(KubectlFerry, SaysSoonWhoNamedAServerThatDoesNotAnswer) {
  const auto began = std::chrono::steady_clock::now();
  const auto result = run({"list", "--context", "other"});
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20))
      << "5, and not the 30 of a request";
  EXPECT_EQ(result.status, 1);
  const std::string hint = "hint: https://127.0.0.1:1, by context 'other' of ";
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("https://127.0.0.1:1: GET /api/v1/nodes"),
                    HasSubstr(hint + (folder_.path() / "config").string()), Not(HasSubstr("secret-token"))));
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

/// The file that a page shows below its name, with another server.
std::string shown_kubeconfig(const std::string& address) {
  std::string out;
  bool inside = false;
  for (std::string line : test::lines_of(kSource / "docs/kubectl.md")) {
    if (line.starts_with("```")) inside = false;
    constexpr std::string_view kTheirs = "127.0.0.1:8001";
    if (const auto at = line.find(kTheirs); at != std::string::npos)
      line.replace(at, kTheirs.size(), address);
    if (inside) out += line + "\n";
    if (line == "# proxy.yaml") inside = true;
  }
  return out;
}

TEST_F(KubectlFerry, DoesWhatThePagesShow) {
  folder_.file("proxy.yaml", shown_kubeconfig(server_.address()));
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
