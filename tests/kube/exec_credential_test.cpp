// SPDX-License-Identifier: Apache-2.0
// Credential plugins: real scripts in a folder of the test, and the transport that gets its credentials so.
#include "kube/exec_credential.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <ostream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kube/credential_file.h"
#include "tests/kube/transport_fixture.h"

namespace ferry::kube {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using std::chrono::sys_seconds;
using test::ApiStandin;
using test::must;
using test::ReceivedApiRequest;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using Mode = ExecConfig::InteractiveMode;

constexpr const char* kV1 = "client.authentication.k8s.io/v1";
constexpr const char* kBeta = "client.authentication.k8s.io/v1beta1";

std::string credential(const json& status, const char* version = kV1) {
  return json{{"apiVersion", version}, {"kind", "ExecCredential"}, {"status", status}}.dump();
}

// ---- the output

TEST(ExecCredentialOutput, HasATokenOrACertificateOrBoth) {
  const auto token = must(parse_exec_credential(credential({{"token", "abc"}}), kV1));
  EXPECT_EQ(token.token, "abc");
  EXPECT_EQ(token.certificate, "");
  EXPECT_FALSE(token.expires.has_value());
  const json pair = {{"clientCertificateData", "-----BEGIN x"}, {"clientKeyData", "-----BEGIN y"}};
  const auto certificate = must(parse_exec_credential(credential(pair, kBeta), kBeta));
  EXPECT_EQ(certificate.token, "");
  EXPECT_EQ(certificate.certificate, "-----BEGIN x");
  EXPECT_EQ(certificate.key, "-----BEGIN y");
  json both = pair;
  both["token"] = "abc";
  both["expirationTimestamp"] = "2026-11-27T20:05:56Z";
  const auto all = must(parse_exec_credential(credential(both), kV1));
  EXPECT_EQ(all.token, "abc");
  EXPECT_EQ(all.key, "-----BEGIN y");
  EXPECT_EQ(all.expires, sys_seconds(seconds(1'795'809'956)));
}

TEST(ExecCredentialOutput, MayHaveKeysWithoutAValueAndOthers) {
  // `aws eks get-token` prints a spec; other programs print null for what they lack.
  const auto read = parse_exec_credential(
      R"({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1", "spec": {},
          "status": {"expirationTimestamp": null, "clientKeyData": null, "token": "k8s-aws-v1.aHR0", "more": 1}})"
      "\n",
      kBeta);
  EXPECT_EQ(must(read).token, "k8s-aws-v1.aHR0");
}

struct BadOutput {
  std::string text;
  std::string message;
};
void PrintTo(const BadOutput& row, std::ostream* out) {
  *out << row.message;
}
class BadOutputTest : public testing::TestWithParam<BadOutput> {};

TEST_P(BadOutputTest, IsRefusedWithTheKeyAndNoSecret) {
  const auto read = parse_exec_credential(GetParam().text, kV1);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::failed);
  EXPECT_EQ(read.error().message, GetParam().message);
  EXPECT_THAT(read.error().message + read.error().hint, Not(HasSubstr("hunter2")));
}

INSTANTIATE_TEST_SUITE_P(
    Outputs, BadOutputTest,
    testing::Values(
        BadOutput{"", "it is empty"}, BadOutput{" \n", "it is empty"},
        BadOutput{"hunter2", "it is no JSON object"}, BadOutput{"\"hunter2\"", "it is no JSON object"},
        BadOutput{"[]", "it is no JSON object"}, BadOutput{"{\"token\": \"hunter2\"", "it is no JSON object"},
        BadOutput{"{} {}", "it is no JSON object"}, BadOutput{"{\"a\": \"\xff\"}", "it is no JSON object"},
        BadOutput{std::string(200, '[') + std::string(200, ']'), "it is no JSON object"},
        BadOutput{"{}", "kind: expected ExecCredential, found nothing"},
        BadOutput{R"({"kind": 1})", "kind: expected ExecCredential, found number"},
        BadOutput{R"({"kind": "Status", "message": "hunter2"})",
                  "kind: expected ExecCredential, found 'Status'"},
        BadOutput{R"({"kind": "ExecCredential"})",
                  "apiVersion: expected client.authentication.k8s.io/v1, found nothing"},
        BadOutput{credential({{"token", "hunter2"}}, kBeta),
                  "apiVersion: expected client.authentication.k8s.io/v1, found "
                  "'client.authentication.k8s.io/v1beta1'"},
        BadOutput{R"({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"})",
                  "status: expected an object, found nothing"},
        BadOutput{credential(nullptr), "status: expected an object, found null"},
        BadOutput{credential(json::array({"hunter2"})), "status: expected an object, found array"},
        BadOutput{credential(json::object()), "status has neither a token nor a certificate"},
        BadOutput{credential({{"token", ""}}), "status has neither a token nor a certificate"},
        BadOutput{credential({{"token", 1234}}), "status.token is not a string but number"},
        BadOutput{credential({{"token", "hunter2 hunter2"}}), "status.token: the token is not one word"},
        BadOutput{credential({{"token", "hunter2\r\nX: y"}}), "status.token: the token is not one word"},
        BadOutput{credential({{"clientKeyData", "hunter2"}}), "status.clientKeyData is no PEM"},
        BadOutput{credential({{"clientKeyData", "-----BEGIN hunter2"}}),
                  "status has clientCertificateData or clientKeyData without the other"},
        BadOutput{credential({{"token", "hunter2"}, {"clientCertificateData", "-----BEGIN x"}}),
                  "status has clientCertificateData or clientKeyData without the other"},
        BadOutput{credential({{"token", "hunter2"}, {"expirationTimestamp", "tomorrow"}}),
                  "status.expirationTimestamp: 'tomorrow' is no time of RFC 3339"},
        BadOutput{credential({{"token", "hunter2"}, {"expirationTimestamp", 1}}),
                  "status.expirationTimestamp is not a string but number"}));

TEST(Rfc3339, IsATimeInAnyZone) {
  const sys_seconds time(seconds(1'795'809'956));
  for (const char* text : {"2026-11-27T20:05:56Z", "2026-11-27T20:05:56.123456789Z",
                           "2026-11-27T21:05:56+01:00", "2026-11-27T14:35:56.0-05:30"})
    EXPECT_EQ(parse_rfc3339(text), time) << text;
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00Z"), sys_seconds(seconds(0)));
  EXPECT_TRUE(parse_rfc3339("9999-12-31T23:59:59Z").has_value());
  EXPECT_TRUE(parse_rfc3339("2024-02-29T00:00:00Z").has_value());
  for (const char* text :
       {"", "2026", "2026-11-27", "2026-11-27T20:05:56", "2026-11-27 20:05:56Z", "2026-13-27T20:05:56Z",
        "2026-02-29T20:05:56Z", "2026-11-27T24:05:56Z", "2026-11-27T20:60:56Z", "2026-11-27T20:05:60Z",
        "2026-11-27T20:05:56.Z", "2026-11-27T20:05:56.1", "2026-11-27T20:05:56+0100",
        "2026-11-27T20:05:56+24:00", "2026-11-27T20:05:56Zz", "-026-11-27T20:05:56Z", "2026-1-027T20:05:56Z"})
    EXPECT_EQ(parse_rfc3339(text), std::nullopt) << text;
}

TEST(ExecInfo, SaysWhetherAPersonCanBeAskedAndWhichCluster) {
  ExecConfig config{.api_version = kV1};
  EXPECT_EQ(json::parse(exec_info(config, true, "")),
            json::parse(R"({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
                            "spec": {"interactive": true}})"));
  config.cluster = R"({"server": "https://a", "config": {"audience": "b"}})";
  const json informed = json::parse(exec_info(config, false, "-----BEGIN x"));
  EXPECT_EQ(informed["spec"],
            json::parse(R"({"interactive": false, "cluster": {"server": "https://a", "config":
                            {"audience": "b"}, "certificate-authority-data": "LS0tLS1CRUdJTiB4"}})"));
}

// ---- the program

class ExecPlugin : public test::TransportTest {
 protected:
  /// Writes a script that counts its runs in the file `runs`, and does `lines` then.
  void plugin(const std::string& lines, const std::string& name = "ferry-login") {
    folder_.file(name, fmt::format("#!/bin/sh\necho run >> '{}'\n{}\n", in("runs"), lines));
    std::filesystem::permissions(in(name), std::filesystem::perms::owner_all);
  }
  /// A script that prints `token-1` in its first run, `token-2` in the next, and so on.
  void plugin_with_tokens(const json& more = json::object()) {
    json status = more;
    status["token"] = "token-N";
    folder_.file("credential", credential(status));
    plugin(
        fmt::format("n=0; while read -r line; do n=$((n+1)); done < '{}'\n"
                    "read -r text < '{}'\n"
                    "printf '%s\\n' \"${{text%%token-N*}}token-$n${{text##*token-N}}\"",
                    in("runs"), in("credential")));
  }
  /// A script that prints this text.
  void plugin_with_output(std::string_view output) {
    folder_.file("output", output);
    plugin(fmt::format("while read -r line || [ -n \"$line\" ]; do printf '%s\\n' \"$line\"; done < '{}'",
                       in("output")));
  }
  std::string in(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string read(const std::string& name) const {
    std::ifstream file(in(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t runs() const {
    const std::string lines = read("runs");
    return static_cast<std::size_t>(std::ranges::count(lines, '\n'));
  }
  ExecConfig config() const {
    return {.place = "config:11: users[0].user.exec",
            .api_version = kV1,
            .command = "./ferry-login",
            .program = in("ferry-login"),
            .interactive = Mode::never};
  }
  std::shared_ptr<ExecAuthenticator> authenticator(ExecConfig config, bool has_terminal = false,
                                                   std::chrono::milliseconds most = seconds(20)) {
    return std::make_shared<ExecAuthenticator>(
        std::move(config), authorities_,
        ExecAuthenticator::Settings{.environment = environment_,
                                    .has_terminal = has_terminal,
                                    .now = [this] { return std::chrono::system_clock::time_point(now_); },
                                    .most = most});
  }
  /// The token that a request would have.
  static std::string token_of_access(const ExecAuthenticator& from) {
    ClusterAccess access;
    from.give_to(access);
    const auto text = CredentialReader(access.token).now();
    return text ? **text : "error: " + text.error().message;
  }

  test::ScratchDirectory folder_;
  Credential authorities_;
  Environment environment_ = {{"PATH", "/usr/bin:/bin"}, {"INHERITED", "yes"}, {"CHANGED", "no"}};
  seconds now_{1'795'809'956};  // 2026-11-27T20:05:56Z
};

TEST_F(ExecPlugin, GetsItsArgumentsAndItsEnvironment) {
  plugin(
      fmt::format("printf '%s|' \"$@\" \"$INHERITED\" \"$CHANGED\" \"$OWN\" > '{0}'\n"
                  "printf '%s' \"$KUBERNETES_EXEC_INFO\" > '{1}'\n"
                  "if read -r line; then echo \"$line\" > '{2}'; fi\n"
                  "printf '%s' '{3}'",
                  in("words"), in("info"), in("input"), credential({{"token", "abc"}})));
  ExecConfig exec = config();
  exec.arguments = {"eks", "get-token", "two words", ""};
  exec.variables = {{"CHANGED", "yes"}, {"OWN", "own"}, {"KUBERNETES_EXEC_INFO", "hidden by Ferry's"}};
  exec.cluster = R"({"server": "https://a"})";
  folder_.file("ca.pem", "-----BEGIN x");
  authorities_ = {.text = {}, .file = in("ca.pem")};
  const auto login = authenticator(exec);
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "abc");
  EXPECT_EQ(read("words"), "eks|get-token|two words||yes|yes|own|");
  EXPECT_EQ(json::parse(read("info")),
            json::parse(R"({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                            "spec": {"interactive": false, "cluster": {"server": "https://a",
                                     "certificate-authority-data": "LS0tLS1CRUdJTiB4"}}})"));
  EXPECT_EQ(read("input"), "") << "it has nothing to read";
}

TEST_F(ExecPlugin, RunsOnceForManyRequests) {
  plugin_with_tokens();
  const auto login = authenticator(config());
  EXPECT_EQ(runs(), 0U) << "not before it is needed";
  for (int i = 0; i < 3; ++i) must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "token-1");
  EXPECT_EQ(runs(), 1U);
}

TEST_F(ExecPlugin, RunsAgainWhenItsCredentialsHaveExpired) {
  plugin_with_tokens({{"expirationTimestamp", "2026-11-27T20:15:56Z"}});
  const auto login = authenticator(config());
  must(login->prepare());
  now_ += seconds(599);
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "token-1");
  now_ += seconds(1);
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "token-2");
  // The script still names a time that has passed: another clock, perhaps, and no reason to run without end.
  must(login->prepare());
  EXPECT_EQ(runs(), 2U);
}

TEST_F(ExecPlugin, RunsOnceMoreAfterARefusal) {
  plugin_with_tokens();
  const auto login = authenticator(config());
  must(login->prepare());
  login->refuse(login->runs());
  login->refuse(login->runs());
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "token-2");
  login->refuse(1);
  must(login->prepare());
  EXPECT_EQ(runs(), 2U) << "an answer to an earlier credential says nothing of this one";
  login->refuse(login->runs());
  must(login->prepare());
  EXPECT_EQ(runs(), 2U) << "the server refuses what the program gives: a third run would not help";
  login->accept(1);
  login->refuse(login->runs());
  must(login->prepare());
  EXPECT_EQ(runs(), 2U) << "an earlier credential was accepted";
  login->accept(login->runs());
  login->refuse(login->runs());
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "token-3") << "the server accepted the second one, and then did not";
}

TEST_F(ExecPlugin, IsLookedForInPath) {
  plugin_with_output(credential({{"token", "abc"}}));
  ExecConfig exec = config();
  exec.program.clear();
  exec.command = "ferry-login";
  const auto lacking = authenticator(exec)->prepare();
  ASSERT_FALSE(lacking.has_value());
  EXPECT_EQ(lacking.error().message,
            "config:11: users[0].user.exec: there is no program 'ferry-login' in PATH");
  EXPECT_EQ(lacking.error().hint, "install it: kubectl needs the same program");
  exec.install_hint = "See https://example.com/login\nfor help.";
  EXPECT_EQ(authenticator(exec)->prepare().error().hint, exec.install_hint);
  folder_.directory("first/ferry-login");
  folder_.file("second/ferry-login", "not executable");
  environment_["PATH"] = in("first") + ":" + in("second") + ":" + folder_.path().string();
  const auto login = authenticator(exec);
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "abc");
}

TEST_F(ExecPlugin, IsNotStartedFromTheFolderInWhichFerryRuns) {
  plugin_with_output(credential({{"token", "abc"}}));
  ExecConfig exec = config();
  exec.program.clear();
  exec.command = "ferry-login";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  for (const char* path : {"", ".", ":/bin", "/bin:"}) {
    environment_["PATH"] = path;
    EXPECT_FALSE(authenticator(exec)->prepare().has_value()) << path;
  }
  std::filesystem::current_path(before);
  EXPECT_EQ(runs(), 0U);
}

TEST_F(ExecPlugin, IsMissingByItsPathToo) {
  ExecConfig exec = config();
  exec.install_hint = "install login";
  const auto lacking = authenticator(exec)->prepare();
  ASSERT_FALSE(lacking.has_value());
  EXPECT_EQ(lacking.error().code, Errc::failed);
  EXPECT_EQ(lacking.error().message,
            "config:11: users[0].user.exec: there is no program " + in("ferry-login"));
  EXPECT_EQ(lacking.error().hint, "install login");
  folder_.file("ferry-login", "#!/bin/sh\n");
  EXPECT_FALSE(authenticator(exec)->prepare().has_value()) << "without the right to be executed";
}

TEST_F(ExecPlugin, SaysWhyItGaveNothing) {
  const auto error_of = [this](const std::string& lines) {
    plugin(lines);
    const auto done = authenticator(config())->prepare();
    EXPECT_FALSE(done.has_value()) << lines;
    return done ? Error() : done.error();
  };
  const Error failed = error_of("exit 7");
  EXPECT_EQ(failed.code, Errc::failed);
  EXPECT_EQ(
      failed.message,
      "config:11: users[0].user.exec: './ferry-login' has ended with status 7; its own message is above");
  EXPECT_THAT(failed.hint, HasSubstr("kubectl get nodes"));
  EXPECT_THAT(error_of("kill -9 $$").message, HasSubstr("has ended with status 137"));
  EXPECT_EQ(error_of("").message,
            "config:11: users[0].user.exec: the output of './ferry-login': it is empty");
  EXPECT_THAT(error_of("echo 'hunter2'").message,
              AllOf(HasSubstr("it is no JSON object"), Not(HasSubstr("hunter2"))));
  EXPECT_THAT(error_of("while :; do echo 0123456789012345678901234567890123456789; done").message,
              HasSubstr("ferry-login has printed more than 1048576 bytes, the limit"));
  folder_.file("ferry-login",
               "\x7f"
               "ELF");
  std::filesystem::permissions(in("ferry-login"), std::filesystem::perms::owner_all);
  EXPECT_FALSE(authenticator(config())->prepare().has_value()) << "no program of this machine";
}

TEST_F(ExecPlugin, RunsAgainAfterAPauseWhenItHasFailed) {
  plugin("exit 1");
  const auto login = authenticator(config());
  const std::string first = login->prepare().error().message;
  login->refuse(login->runs());
  now_ += seconds(59);
  EXPECT_EQ(login->prepare().error().message, first);
  EXPECT_EQ(runs(), 1U);
  EXPECT_EQ(token_of_access(*login), "error: " + first);
  now_ += seconds(1);
  EXPECT_FALSE(login->prepare().has_value());
  EXPECT_EQ(runs(), 2U);
  now_ += seconds(119);
  EXPECT_FALSE(login->prepare().has_value());
  EXPECT_EQ(runs(), 2U) << "the second pause is twice as long";
  plugin_with_tokens();
  now_ += seconds(1);
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "token-3") << "the person has logged in meanwhile";
  must(login->prepare());
  EXPECT_EQ(runs(), 3U);
}

TEST_F(ExecPlugin, HasATimeIfItAsksNobodyHere) {
  plugin("exec sleep 600");
  const auto begin = std::chrono::steady_clock::now();
  const auto late = authenticator(config(), false, std::chrono::milliseconds(100))->prepare();
  ASSERT_FALSE(late.has_value());
  EXPECT_THAT(late.error().message, HasSubstr("ferry-login has not ended within 1 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

TEST_F(ExecPlugin, IsNotWaitedForByThatWhichItLeavesBehind) {
  plugin(
      fmt::format("sleep 600 & echo $! > '{}'\nprintf '%s' '{}'", in("pid"), credential({{"token", "a"}})));
  const auto begin = std::chrono::steady_clock::now();
  const auto login = authenticator(config());
  must(login->prepare());
  EXPECT_EQ(token_of_access(*login), "a");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15));
  ::kill(std::stoi(read("pid")), SIGKILL);
}

TEST_F(ExecPlugin, MayAskOnATerminalAlone) {
  plugin(fmt::format("printf '%s' \"$KUBERNETES_EXEC_INFO\" > '{}'\nprintf '%s' '{}'", in("info"),
                     credential({{"token", "abc"}})));
  struct Row {
    Mode mode;
    bool has_terminal;
    bool interactive;
  };
  for (const Row& row : {Row{Mode::never, true, false}, Row{Mode::if_available, true, true},
                         Row{Mode::if_available, false, false}, Row{Mode::always, true, true}}) {
    ExecConfig exec = config();
    exec.interactive = row.mode;
    must(authenticator(exec, row.has_terminal)->prepare());
    EXPECT_EQ(json::parse(read("info"))["spec"]["interactive"], row.interactive);
  }
  folder_.remove("runs");
  ExecConfig exec = config();
  exec.interactive = Mode::always;
  const auto refused = authenticator(exec, false)->prepare();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("standard input is no terminal"));
  EXPECT_EQ(runs(), 0U);
}

// ---- kubectl's own policy

class PluginPolicy : public ExecPlugin {
 protected:
  Result<> check(const std::string& policy, const ExecConfig& exec) {
    folder_.file("home/.kube/kuberc",
                 "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n" + policy);
    environment_["HOME"] = in("home");
    return check_plugin_policy(exec, environment_);
  }
};

TEST_F(PluginPolicy, IsThatOfKubectl) {
  plugin("");
  environment_["PATH"] = folder_.path().string();
  ExecConfig by_name = config();
  by_name.command = "ferry-login";
  by_name.program.clear();
  for (const char* allows :
       {"", "credentialPluginPolicy: ''", "credentialPluginPolicy: AllowAll",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{name: ferry-login}]",
        "credentialPluginPolicy: Allowlist\n"
        "credentialPluginAllowlist: [{name: other}, {command: ferry-login}]"}) {
    must(check(allows, by_name));
    must(check(allows, config()));
  }
  must(check(
      "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{name: " + in("ferry-login") + "}]",
      by_name));
  for (const char* forbids : {"credentialPluginPolicy: DenyAll", "credentialPluginPolicy: Allowlist",
                              "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{name: ''}]",
                              "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{name: ferry}]",
                              "credentialPluginPolicy: Allowlst", "credentialPluginPolicy: []"}) {
    const auto refused = check(forbids, by_name);
    ASSERT_FALSE(refused.has_value()) << forbids;
    EXPECT_EQ(refused.error().code, Errc::invalid_config);
    EXPECT_THAT(refused.error().message, AllOf(StartsWith(in("home/.kube/kuberc:3: credentialPluginPolicy")),
                                               HasSubstr("'ferry-login' of config:11: users[0].user.exec")));
    EXPECT_THAT(refused.error().hint, HasSubstr("KUBERC=off"));
  }
  EXPECT_EQ(runs(), 0U);
}

TEST_F(PluginPolicy, IsReadWhereKubectlReadsIt) {
  EXPECT_FALSE(check("credentialPluginPolicy: DenyAll", config()).has_value());
  for (const auto& [name, value] : {std::pair{"KUBERC", "off"}, std::pair{"KUBECTL_KUBERC", "false"}}) {
    Environment without = environment_;
    without[name] = value;
    must(check_plugin_policy(config(), without));
  }
  environment_["KUBERC"] = in("other");
  EXPECT_FALSE(check_plugin_policy(config(), environment_).has_value()) << "a file that was named";
  folder_.file("other", "kind: Preference\n");
  must(check_plugin_policy(config(), environment_));
  folder_.file("other", "[]");
  EXPECT_FALSE(check_plugin_policy(config(), environment_).has_value());
  environment_.erase("KUBERC");
  folder_.remove("home/.kube/kuberc");
  must(check_plugin_policy(config(), environment_));
  environment_.erase("HOME");
  must(check_plugin_policy(config(), environment_));
}

// ---- the requests

class ExecTransportTest : public ExecPlugin {
 protected:
  /// Opens the way to a server, with the credentials of the script.
  void open_with(const ApiStandin& server, const std::shared_ptr<ExecAuthenticator>& login) {
    ClusterAccess access = access_to(server);
    login->give_to(access);
    open(std::move(access));
    exec_ = std::make_unique<ExecTransport>(*transport_, login);
  }
  Heard get_with(const std::string& path) {
    Heard heard;
    exec_->send({.path = path}, {.ended = [&heard](Result<ApiReply> end) { heard.end = std::move(end); }});
    run_until([&heard] { return heard.end.has_value(); });
    return heard;
  }
  static std::vector<std::string> tokens_of(const ApiStandin& server) {
    std::vector<std::string> out;
    for (const ReceivedApiRequest& seen : server.seen()) out.push_back(seen.header("authorization"));
    return out;
  }
  std::unique_ptr<ExecTransport> exec_;
};

TEST_F(ExecTransportTest, SendsTheTokenAndANewOneAfter401) {
  plugin_with_tokens();
  const ApiStandin server(with_tls());
  open_with(server, authenticator(config()));
  EXPECT_EQ(get_with("/echo").status(), 200);
  EXPECT_EQ(get_with("/status?code=403").status(), 403);
  EXPECT_EQ(get_with("/echo").status(), 200);
  EXPECT_EQ(get_with("/status?code=401").status(), 401);
  EXPECT_EQ(get_with("/status?code=401").status(), 401);
  EXPECT_EQ(get_with("/echo").status(), 200);
  EXPECT_THAT(tokens_of(server), ElementsAre("Bearer token-1", "Bearer token-1", "Bearer token-1",
                                             "Bearer token-1", "Bearer token-2", "Bearer token-2"));
  EXPECT_EQ(runs(), 2U);
  EXPECT_EQ(get_with("/status?code=401").status(), 401);
  EXPECT_EQ(get_with("/echo").status(), 200);
  EXPECT_EQ(tokens_of(server).back(), "Bearer token-3") << "token-2 was accepted for a while";
}

TEST_F(ExecTransportTest, ReportsAFailureAsTheRequestsOwn) {
  plugin("exit 3");
  const ApiStandin server(with_tls());
  open_with(server, authenticator(config()));
  for (int i = 0; i < 2; ++i) {
    const Heard heard = get_with("/echo");
    EXPECT_EQ(heard.error(), Errc::failed);
    EXPECT_THAT(heard.message(),
                HasSubstr("config:11: users[0].user.exec: './ferry-login' has ended with status 3"));
  }
  EXPECT_THAT(server.seen(), IsEmpty());
  EXPECT_EQ(runs(), 1U);
}

TEST_F(ExecTransportTest, ShowsTheCertificate) {
  const auto content = [](const std::string& file) {
    std::ifstream stream(certificate(file));
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  plugin_with_output(credential(
      {{"clientCertificateData", content("client.pem")}, {"clientKeyData", content("client.key")}}));
  const ApiStandin server(with_tls("server", {"--client-authority", certificate("ca.pem")}));
  const auto login = authenticator(config());
  open_with(server, login);
  EXPECT_THAT(get_with("/echo").body(), HasSubstr("'client'"));
  EXPECT_THAT(tokens_of(server), ElementsAre(""));
  folder_.file("output", credential({{"clientCertificateData", content("next-client.pem")},
                                     {"clientKeyData", content("next-client.key")},
                                     {"token", "abc"}}));
  login->refuse(login->runs());
  EXPECT_THAT(get_with("/echo").body(), HasSubstr("'next-client'"));
  EXPECT_THAT(tokens_of(server), ElementsAre("", "Bearer abc"));
}

TEST_F(ExecTransportTest, PassesAllOnWithoutAProgram) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  access.token.text = "own";
  open(std::move(access));
  exec_ = std::make_unique<ExecTransport>(*transport_, nullptr);
  EXPECT_EQ(get_with("/status?code=401").status(), 401);
  EXPECT_THAT(tokens_of(server), ElementsAre("Bearer own"));
}

}  // namespace
}  // namespace ferry::kube
