// SPDX-License-Identifier: Apache-2.0
#include "kube/cluster_access.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kube {
namespace {

using test::must;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// "-----BEGIN x", "-----BEGIN y" and "hunter2" in base64.
constexpr const char* kPem = "LS0tLS1CRUdJTiB4";
constexpr const char* kOtherPem = "LS0tLS1CRUdJTiB5";
constexpr const char* kNoPem = "aHVudGVyMg==";

std::string config(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\npreferences: {}\ncurrent-context: c\n"
         "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
         "clusters:\n- name: k\n  cluster: {" +
         cluster + "}\nusers:\n- name: u\n  user: {" + user + "}\n";
}

Result<ClusterAccess> read(const std::string& text, const std::string& context = {},
                           const Environment& environment = {}) {
  return access_from_kubeconfig({.file = "some/config", .text = text}, context, environment);
}
Result<ClusterAccess> read_user(const std::string& user) {
  return read(config("server: https://a", user));
}

TEST(Kubeconfig, IsWhatItsContextLeadsTo) {
  const ClusterAccess access = must(read(R"(apiVersion: v1
kind: Config
preferences: {colors: true}
extensions: []
current-context: prod
clusters:
- {name: old, cluster: {server: "http://192.0.2.1", some-day: 1}}
- name: new
  cluster:
    server: https://API.example:6443/base/
    certificate-authority: pki/ca.crt
    tls-server-name: kubernetes
    proxy-url: http://proxy:3128
    disable-compression: true
    insecure-skip-tls-verify: false
    extensions: [{name: x, extension: {a: b}}]
users:
- name: cloud
  user: {exec: {command: aws}}
- name: admin
  user:
    client-certificate: /etc/admin.crt
    client-key: ../admin.key
contexts:
- {name: prod, context: {cluster: new, user: admin, namespace: gpu, extensions: []}}
- {name: other, context: {cluster: old, user: cloud}}
)"));
  EXPECT_EQ(access.server.text(), "https://api.example:6443/base");
  EXPECT_EQ(access.authorities, (Credential{.text = {}, .file = "some/pki/ca.crt"}));
  EXPECT_EQ(access.tls_server_name, "kubernetes");
  EXPECT_EQ(access.proxy, "http://proxy:3128");
  EXPECT_FALSE(access.compressed);
  EXPECT_EQ(access.certificate, (Credential{.text = {}, .file = "/etc/admin.crt"}));
  EXPECT_EQ(access.key, (Credential{.text = {}, .file = "some/../admin.key"}));
  EXPECT_TRUE(access.token.empty());
  EXPECT_EQ(access.default_namespace, "gpu");
}

TEST(Kubeconfig, MayBeJson) {
  const ClusterAccess access = must(read(
      R"({"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"k","cluster":{"server":"https://[fd00::1]:6443"}}],
          "users":[{"name":"u","user":{"token":"abc"}}],"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}]})"));
  EXPECT_EQ(access.server.authority(), "[fd00::1]:6443");
  EXPECT_EQ(access.token.text, "abc");
}

TEST(Kubeconfig, CountsWhatIsInPlaceBeforeAFile) {
  const std::string pem = kPem;
  const ClusterAccess access =
      must(read(config("server: https://a, certificate-authority: ca.crt, certificate-authority-data: " + pem,
                       "client-certificate: x, client-certificate-data: " + pem +
                           ", client-key: y, client-key-data: " + kOtherPem)));
  EXPECT_EQ(access.authorities, (Credential{.text = "-----BEGIN x", .file = {}}));
  EXPECT_EQ(access.certificate, (Credential{.text = "-----BEGIN x", .file = {}}));
  EXPECT_EQ(access.key, (Credential{.text = "-----BEGIN y", .file = {}}));
}

TEST(Kubeconfig, SaysWhoWeAre) {
  EXPECT_EQ(must(read_user("tokenFile: token")).token, (Credential{.text = {}, .file = "some/token"}));
  EXPECT_EQ(must(read_user("token: ' abc '")).token, (Credential{.text = "abc", .file = {}}));
  const ClusterAccess basic = must(read_user("username: a, password: '1234'"));
  EXPECT_EQ(basic.username, "a");
  EXPECT_EQ(basic.password, "1234");
  for (const char* nobody : {"", "token: ''", "token: , tokenFile: , client-key-data: ''"}) {
    const ClusterAccess access = must(read_user(nobody));
    EXPECT_TRUE(access.token.empty() && access.key.empty() && access.username.empty()) << nobody;
  }
  EXPECT_TRUE(must(read("current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
                        "clusters: [{name: k, cluster: {server: https://a}}]\nusers:\n"))
                  .token.empty());
}

TEST(Kubeconfig, HasTheEnvironmentsProxyUnlessItHasItsOwn) {
  const Environment environment{{"HTTPS_PROXY", "env:1"}, {"NO_PROXY", "b"}};
  EXPECT_EQ(must(read(config("server: https://a", ""), "", environment)).proxy, "http://env:1");
  EXPECT_EQ(must(read(config("server: https://b", ""), "", environment)).proxy, "");
  EXPECT_EQ(must(read(config("server: https://b, proxy-url: https://own", ""), "", environment)).proxy,
            "https://own");
  const auto wrong = read(config("server: https://a", ""), "", {{"HTTPS_PROXY", "a b"}});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message, "HTTPS_PROXY: it is not the URL of a proxy");
}

struct BadKubeconfig {
  std::string text;
  std::string message;
};
void PrintTo(const BadKubeconfig& row, std::ostream* out) {
  *out << row.message;
}
class BadKubeconfigTest : public testing::TestWithParam<BadKubeconfig> {};

TEST_P(BadKubeconfigTest, IsRefusedWithPlaceKeyAndReasonAndNoSecret) {
  const auto access = read(GetParam().text);
  ASSERT_FALSE(access.has_value());
  EXPECT_EQ(access.error().code, Errc::invalid_config);
  EXPECT_EQ(access.error().message, "some/config" + GetParam().message);
  EXPECT_THAT(access.error().message + access.error().hint, Not(HasSubstr("hunter2")));
}

BadKubeconfig bad_cluster(const std::string& cluster, const std::string& message) {
  return {config(cluster, ""), ":8: clusters[0].cluster" + message};
}
BadKubeconfig bad_user(const std::string& user, const std::string& message) {
  return {config("server: https://a", user), ":11: users[0].user" + message};
}
// All but the contexts are as they should be.
BadKubeconfig bad_context(const std::string& contexts, const std::string& message) {
  return {
      "current-context: c\nclusters: [{name: k, cluster: {server: https://a}}]\nusers: [{name: u, user: "
      "{}}]\n"
      "contexts: " +
          contexts + "\n",
      message};
}

INSTANTIATE_TEST_SUITE_P(
    Whole, BadKubeconfigTest,
    testing::Values(
        BadKubeconfig{"", ": no context is chosen: there is no current-context"},
        BadKubeconfig{"{}", ": no context is chosen: there is no current-context"},
        BadKubeconfig{"current-context: ''", ": no context is chosen: there is no current-context"},
        BadKubeconfig{"[]", ":1: expected a map, found a list"},
        BadKubeconfig{"hunter2", ":1: expected a map, found a string"},
        BadKubeconfig{"kind: Pod", ":1: kind: expected Config, found the string 'Pod'"},
        BadKubeconfig{"apiVersion: v2", ":1: apiVersion: expected v1, found the string 'v2'"},
        BadKubeconfig{"current-contxt: c",
                      ":1: current-contxt: unknown key; did you mean 'current-context'?"},
        BadKubeconfig{"current-context: c\ncurrent-context: c",
                      ":2: current-context: the key stands twice, first at some/config:1"},
        BadKubeconfig{"current-context: 7",
                      ":1: current-context: expected a string, found a number, a boolean or a date"},
        BadKubeconfig{"current-context: c\ncontexts: {}", ":2: contexts: expected a list, found a map"},
        BadKubeconfig{"current-context: c", ":1: current-context: there is no context 'c'"},
        bad_context("[{name: other, context: {}}]", ":1: current-context: there is no context 'c'"),
        bad_context("[c]", ":4: contexts[0]: expected a map with a name that is a string"),
        bad_context("[{context: {}}]", ":4: contexts[0]: expected a map with a name that is a string"),
        bad_context("[{name: 1}]", ":4: contexts[0]: expected a map with a name that is a string"),
        bad_context("[{name: c}]", ":4: contexts[0].context: the key is missing"),
        bad_context("[{name: c, context: {cluster: k}, more: 1}]", ":4: contexts[0].more: unknown key"),
        bad_context("[{name: c, context: {cluster: k}}, {name: c, context: {cluster: k}}]",
                    ":4: contexts[1].name: an entry before it is called 'c' too"),
        bad_context("[{name: c, context: }]", ":4: contexts[0].context.cluster: the key is missing"),
        bad_context("[{name: c, context: []}]", ":4: contexts[0].context: expected a map, found a list"),
        bad_context("[{name: c, context: {clutser: k}}]",
                    ":4: contexts[0].context.clutser: unknown key; did you mean 'cluster'?"),
        bad_context("[{name: c, context: {cluster: kk}}]",
                    ":4: contexts[0].context.cluster: there is no cluster 'kk'; did you mean 'k'?"),
        bad_context("[{name: c, context: {cluster: k, user: who}}]",
                    ":4: contexts[0].context.user: there is no user 'who'"),
        bad_context("[{name: c, context: {cluster: k, namespace: []}}]",
                    ":4: contexts[0].context.namespace: expected a string, found a list")));

INSTANTIATE_TEST_SUITE_P(
    Cluster, BadKubeconfigTest,
    testing::Values(
        bad_cluster("", ".server: the key is missing"),
        bad_cluster("server: ''", ".server: the key is missing"),
        bad_cluster("server: [a]", ".server: expected a string, found a list"),
        bad_cluster("server: a",
                    ".server: 'a' is not where a server is: it begins with neither https:// nor http://"),
        bad_cluster("server: 'https://u:hunter2@a'", ".server: a server's address has no credentials in it"),
        bad_cluster("server: http://192.0.2.1", ".server: without TLS only this machine itself is talked to"),
        bad_cluster("server: http://127.0.0.1, proxy-url: http://proxy",
                    ".proxy-url: without TLS a proxy would see our credentials"),
        bad_cluster("server: https://a, insecure-skip-tls-verify: true",
                    ".insecure-skip-tls-verify: the server's certificate is always verified"),
        bad_cluster("server: https://a, insecure-skip-tls-verify: yes",
                    ".insecure-skip-tls-verify: expected true or false, found yes"),
        bad_cluster("server: https://a, tls-server-name: 'a b'",
                    ".tls-server-name: 'a b' is neither a name nor an IP address"),
        bad_cluster("server: https://a, proxy-url: 'ftp://u:hunter2@proxy'",
                    ".proxy-url: it is not the URL of a proxy"),
        bad_cluster("server: https://a, certificate-autority: x",
                    ".certificate-autority: unknown key; did you mean 'certificate-authority'?"),
        bad_cluster("server: https://a, certificate-authority-data: '*'",
                    ".certificate-authority-data: it is not base64"),
        bad_cluster(std::string("server: https://a, certificate-authority-data: ") + kNoPem,
                    ".certificate-authority-data: it is base64, but of no PEM"),
        bad_cluster("server: https://a, certificate-authority: {}",
                    ".certificate-authority: expected a string, found a map")));

INSTANTIATE_TEST_SUITE_P(
    User, BadKubeconfigTest,
    testing::Values(
        bad_user("exec: {command: aws, args: [hunter2]}",
                 ".exec: Ferry runs no programs of a kubeconfig here, so exec cannot log it in"),
        bad_user("token: a, exec: {}",
                 ".exec: Ferry runs no programs of a kubeconfig here, so exec cannot log it in"),
        bad_user("auth-provider: {name: gcp}", ".auth-provider: logging in by a provider is not done here"),
        bad_user("as: admin", ".as: Ferry acts only as the user that it is logged in as"),
        bad_user("as-groups: [a]", ".as-groups: Ferry acts only as the user that it is logged in as"),
        bad_user("tokn: hunter2", ".tokn: unknown key; did you mean 'token'?"),
        bad_user("token: 1234", ".token: expected a string, found a number, a boolean or a date"),
        bad_user("token: [hunter2]", ".token: expected a string, found a list"),
        bad_user("token: hunter2 hunter2", ".token: the token is not one word"),
        bad_user("token: \"hunter2\\nx\"", ".token: the token is not one word"),
        bad_user("token: hunter2, tokenFile: x",
                 ".token: tokenFile is there too, and which counts is not agreed on"),
        bad_user("token: hunter2, username: a", ".username: a token is there too"),
        bad_user("client-certificate: x", ".client-key: the key is missing"),
        bad_user("client-key: x", ".client-certificate: the key is missing"),
        bad_user(std::string("client-certificate: x, client-key-data: ") + kNoPem,
                 ".client-key-data: it is base64, but of no PEM"),
        bad_user("password: 1234", ".password: expected a string, found a number, a boolean or a date")));

INSTANTIATE_TEST_SUITE_P(
    OfAService, BadKubeconfigTest,
    testing::Values(
        BadKubeconfig{"some-day: 1", ":1: some-day: unknown key"},
        bad_user("as-uid: u", ".as-uid: Ferry acts only as the user that it is logged in as"),
        bad_user("as-user-extra: {a: [b]}",
                 ".as-user-extra: Ferry acts only as the user that it is logged in as"),
        bad_user("token: a, exec: {apiVersion: client.authentication.k8s.io/v1, command: a, interactiveMode: "
                 "Never}",
                 ".exec: Ferry runs no programs of a kubeconfig here, so exec cannot log it in")));

TEST(Kubeconfig, KnowsNoContextThatWasAskedFor) {
  const auto access = read(config("server: https://a", ""), "cc");
  ASSERT_FALSE(access.has_value());
  EXPECT_EQ(access.error().message, "some/config: there is no context 'cc'; did you mean 'c'?");
  EXPECT_EQ(access.error().hint, "there are: c");
}

// ---- where it comes from

class ClusterAccessTest : public testing::Test {
 protected:
  ClusterAccessTest() {
    folder_.file("pod/token", "abc\n");
    folder_.file("pod/ca.crt", "-----BEGIN");
    folder_.file("pod/namespace", "gpu");
    folder_.file("config", named("config"));
    folder_.file("home/.kube/config", named("home"));
  }
  static std::string named(const std::string& host) { return config("server: https://" + host, ""); }
  std::string in(const std::string& name) const { return (folder_.path() / name).string(); }
  Result<ClusterAccess> access(const Environment& environment, const AccessChoice& choice = {}) const {
    return cluster_access(choice, environment, in("pod"));
  }

  test::ScratchDirectory folder_;
  Environment pod_{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
};

TEST_F(ClusterAccessTest, IsAPodsOwn) {
  const ClusterAccess pod = must(access(pod_));
  EXPECT_EQ(pod.server.text(), "https://10.96.0.1:443");
  EXPECT_EQ(pod.token, (Credential{.text = {}, .file = in("pod/token")}));
  EXPECT_EQ(pod.authorities, (Credential{.text = {}, .file = in("pod/ca.crt")}));
  EXPECT_EQ(pod.default_namespace, "gpu");
  EXPECT_EQ(pod.proxy, "");
  pod_["HTTPS_PROXY"] = "proxy:1";
  EXPECT_EQ(must(access(pod_)).proxy, "http://proxy:1");
  pod_["NO_PROXY"] = "10.0.0.0/8";
  EXPECT_EQ(must(access(pod_)).proxy, "");
  pod_["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(must(access(pod_)).server.text(), "https://[fd00::1]:443");
  folder_.remove("pod/namespace");
  EXPECT_EQ(must(access(pod_)).default_namespace, "");
}

TEST_F(ClusterAccessTest, IsNotHalfAPods) {
  for (const auto& [host, port] : {std::pair{"10.96.0.1", ""},
                                   {"10.96.0.1", "x"},
                                   {"10.96.0.1", "443/x"},
                                   {"a b", "443"},
                                   {"[fd00::1]", "443"}}) {
    const auto none = access({{"KUBERNETES_SERVICE_HOST", host}, {"KUBERNETES_SERVICE_PORT", port}});
    ASSERT_FALSE(none.has_value()) << host << ' ' << port;
    EXPECT_EQ(none.error().code, Errc::invalid_config);
    EXPECT_THAT(none.error().message, StartsWith("KUBERNETES_SERVICE_HOST='"));
  }
  for (const char* file : {"pod/ca.crt", "pod/token"}) {
    folder_.remove(file);
    const auto none = access(pod_);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code, Errc::invalid_config);
    EXPECT_THAT(none.error().message, HasSubstr(in(file)));
    EXPECT_THAT(none.error().hint, HasSubstr("service account"));
  }
}

TEST_F(ClusterAccessTest, IsLookedForInOrder) {
  Environment environment = pod_;
  environment["HOME"] = in("home");
  environment["KUBECONFIG"] = in("nowhere") + "::" + in("config");
  folder_.file("chosen", named("chosen"));
  EXPECT_EQ(must(access(environment, {.kubeconfig = in("chosen")})).server.host, "chosen");
  EXPECT_EQ(must(access(environment)).server.host, "config");
  environment["KUBECONFIG"] = in("chosen") + ":" + in("config");
  const auto several = access(environment);
  ASSERT_FALSE(several.has_value());
  EXPECT_EQ(several.error().code, Errc::invalid_config);
  EXPECT_EQ(several.error().message, "KUBECONFIG names several files, " + in("chosen") + " and " +
                                         in("config") + ", and one is read here");
  environment["KUBECONFIG"] = "";
  EXPECT_EQ(must(access(environment)).server.host, "10.96.0.1");
  EXPECT_EQ(must(access(environment, {.kubeconfig = {}, .context = "c"})).server.host, "home");
  environment.erase("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(must(access(environment)).server.host, "home");
  folder_.remove("home/.kube");
  EXPECT_EQ(access(environment).error().code, Errc::usage);
  EXPECT_EQ(access({}).error().code, Errc::usage);
}

TEST_F(ClusterAccessTest, DoesNotPassOverAFileThatWasNamed) {
  EXPECT_EQ(access(pod_, {.kubeconfig = in("nowhere")}).error().code, Errc::invalid_config);
  pod_["KUBECONFIG"] = in("nowhere");
  const auto none = access(pod_);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "none of the files in KUBECONFIG is there: " + in("nowhere"));
  pod_["KUBECONFIG"] = in("pod");
  EXPECT_EQ(access(pod_).error().code, Errc::invalid_config) << "a folder";
}

}  // namespace
}  // namespace ferry::kube
