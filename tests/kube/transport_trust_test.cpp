// SPDX-License-Identifier: Apache-2.0
// Whom the transport trusts, and who it says that we are.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "tests/kube/transport_fixture.h"

namespace ferry::kube {
namespace {

using test::ApiStandin;
using test::must;
using test::ReceivedApiRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class TransportTrust : public test::TransportTest {
 protected:
  /// As the kubelet and others do it: a new file under the old name.
  void replace(const std::string& name, std::string_view content) {
    folder_.file(name + ".new", content);
    std::filesystem::rename(folder_.path() / (name + ".new"), folder_.path() / name);
  }
  static std::string content(const std::string& file) {
    std::ifstream in(certificate(file));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Credential file(const std::string& name) const { return {.text = {}, .file = folder_.path() / name}; }

  test::ScratchDirectory folder_;
};

TEST_F(TransportTrust, IsForServersOfTheClustersOwnAuthority) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
  access.authorities = {.text = content("ca.pem"), .file = {}};
  open(access);
  EXPECT_EQ(get("/echo").status(), 200) << "in place of a file";

  for (const Credential& authorities : {Credential{.text = content("other.pem"), .file = {}}, Credential{}}) {
    access.authorities = authorities;
    open(access);
    const Heard heard = get("/echo");
    EXPECT_EQ(heard.error(), Errc::failed) << heard.message();
    EXPECT_THAT(heard.message(), HasSubstr("certificate"));
    EXPECT_THAT(heard.hint(), HasSubstr("certificate-authority"));
  }
  EXPECT_THAT(server.seen(), SizeIs(2)) << "a server that is not trusted hears nothing";
}

TEST_F(TransportTrust, IsNotForCertificatesThatHaveEnded) {
  const ApiStandin server(with_tls("ended"));
  open(access_to(server));
  const Heard heard = get("/echo");
  EXPECT_EQ(heard.error(), Errc::failed);
  EXPECT_THAT(heard.message(), HasSubstr("expired"));
  EXPECT_THAT(server.seen(), IsEmpty());
}

TEST_F(TransportTrust, IsForTheServersNameAlone) {
  const ApiStandin server(with_tls("named"));
  ClusterAccess access = access_to(server);
  access.token.text = "secret";
  open(access);
  EXPECT_EQ(get("/echo").error(), Errc::failed) << "it is somebody else";
  EXPECT_THAT(server.seen(), IsEmpty());

  access.tls_server_name = "api.example";
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
  EXPECT_EQ(server.seen().at(0).header("host"), access.server.authority());
  access.tls_server_name = "other.example";
  open(access);
  EXPECT_EQ(get("/echo").error(), Errc::failed);
}

TEST_F(TransportTrust, FollowsANewAuthority) {
  const ApiStandin server(with_tls());
  replace("ca.pem", content("other.pem"));
  ClusterAccess access = access_to(server);
  access.authorities = file("ca.pem");
  open(access);
  EXPECT_EQ(get("/echo").error(), Errc::failed);
  replace("ca.pem", content("ca.pem"));
  EXPECT_EQ(get("/echo").status(), 200);
  replace("ca.pem", content("other.pem"));
  EXPECT_EQ(get("/echo").error(), Errc::failed) << "not over the old connection either";
  replace("ca.pem", "no certificate");
  EXPECT_EQ(get("/echo").error(), Errc::failed);
}

TEST_F(TransportTrust, ShowsOurCertificate) {
  const ApiStandin server(with_tls("server", {"--client-authority", certificate("ca.pem")}));
  ClusterAccess access = access_to(server);
  open(access);
  EXPECT_NE(get("/echo").message(), "") << "without one nobody is let in";

  replace("cert.pem", content("client.pem"));
  replace("key.pem", content("client.key"));
  access.certificate = file("cert.pem");
  access.key = file("key.pem");
  open(access);
  EXPECT_THAT(get("/echo").body(), HasSubstr("'client'"));
  replace("cert.pem", content("next-client.pem"));
  replace("key.pem", content("next-client.key"));
  EXPECT_THAT(get("/echo").body(), HasSubstr("'next-client'")) << "a new one counts, over a new connection";
  access.certificate = {.text = content("client.pem"), .file = {}};
  access.key = {.text = content("client.key"), .file = {}};
  open(access);
  EXPECT_THAT(get("/echo").body(), HasSubstr("'client'"));
}

TEST_F(TransportTrust, SaysThatOurCertificateIsNone) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  access.certificate = {.text = content("client.pem"), .file = {}};
  for (const char* key : {"next-client.key", "client-encrypted.key", "client.pem"}) {
    access.key = {.text = content(key), .file = {}};
    open(access);
    const Heard heard = get("/echo");
    EXPECT_EQ(heard.error(), Errc::failed) << key << ": " << heard.message();
    EXPECT_THAT(heard.hint(), HasSubstr("client-certificate")) << key;
  }
  EXPECT_THAT(server.seen(), IsEmpty());
}

TEST_F(TransportTrust, FollowsANewToken) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  access.token = file("token");
  open(access);
  const Heard none = get("/echo");
  EXPECT_EQ(none.error(), Errc::failed);
  EXPECT_THAT(none.message(), HasSubstr((folder_.path() / "token").string()));

  replace("token", "first\n");
  EXPECT_EQ(get("/echo").status(), 200);
  EXPECT_EQ(get("/echo").status(), 200);
  replace("token", "other");  // of the same length
  EXPECT_EQ(get("/echo").status(), 200);
  // In place, as some write it.
  folder_.file("token", "third");
  EXPECT_EQ(get("/echo").status(), 200);
  std::vector<std::string> tokens;
  for (const ReceivedApiRequest& seen : server.seen()) {
    tokens.push_back(seen.header("authorization"));
    EXPECT_EQ(seen.connection, 1);
  }
  EXPECT_THAT(tokens, ElementsAre("Bearer first", "Bearer first", "Bearer other", "Bearer third"));
}

TEST_F(TransportTrust, FollowsATokenWhoseFolderIsReplaced) {
  // The kubelet's way: token -> ..data/token, ..data -> ..TIME.
  const ApiStandin server(with_tls());
  folder_.file("..1/token", "first");
  folder_.file("..2/token", "other");
  folder_.link("..data", "..1");
  folder_.link("token", "..data/token");
  ClusterAccess access = access_to(server);
  access.token = file("token");
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
  folder_.link("..data", "..2");
  EXPECT_EQ(get("/echo").status(), 200);
  EXPECT_EQ(server.seen().at(0).header("authorization"), "Bearer first");
  EXPECT_EQ(server.seen().at(1).header("authorization"), "Bearer other");
}

TEST_F(TransportTrust, SendsNoTokenThatIsNone) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  access.token = file("token");
  open(access);
  for (const char* text : {"", "\n", "two words", "a\r\nX-Remote-User: admin", "t\xc3\xb6ken"}) {
    replace("token", text);
    const Heard heard = get("/echo");
    EXPECT_EQ(heard.error(), Errc::failed) << text;
    EXPECT_THAT(heard.message(), Not(HasSubstr("words"))) << "a token is never shown";
  }
  folder_.remove("token");
  folder_.directory("token");
  EXPECT_EQ(get("/echo").error(), Errc::failed);
  folder_.remove("token");
  ASSERT_EQ(::mkfifo((folder_.path() / "token").c_str(), 0600), 0);
  EXPECT_EQ(get("/echo").error(), Errc::failed) << "and does not wait for somebody to write it";
  replace("token", std::string((1U << 20U) + 1, 'x'));
  EXPECT_EQ(get("/echo").error(), Errc::failed);
  EXPECT_THAT(server.seen(), IsEmpty());
}

TEST_F(TransportTrust, TakesTheTokenInPlaceWhileItsFileCannotBeRead) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  access.token = {.text = "in-place", .file = folder_.path() / "token"};
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
  replace("token", "in-the-file");
  EXPECT_EQ(get("/echo").status(), 200);
  EXPECT_EQ(server.seen().at(0).header("authorization"), "Bearer in-place");
  EXPECT_EQ(server.seen().at(1).header("authorization"), "Bearer in-the-file");
}

TEST_F(TransportTrust, SendsAPassword) {
  const ApiStandin server(with_tls());
  ClusterAccess access = access_to(server);
  access.username = "admin";
  access.password = "secret:word";
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
  EXPECT_EQ(server.seen().at(0).header("authorization"), "Basic YWRtaW46c2VjcmV0OndvcmQ=");
}

TEST_F(TransportTrust, GivesAProxyNoCredentials) {
  const ApiStandin server(with_tls("named"));
  const ApiStandin proxy({"--proxy-to", std::to_string(server.port())});
  ClusterAccess access = access_to(server);
  // Nobody here can look it up: the proxy has to.
  access.server = must(ServerAddress::parse("https://api.example:6443"));
  access.proxy =
      must(proxy_of_environment(access.server, {{"HTTPS_PROXY", "127.0.0.1:" + std::to_string(proxy.port())},
                                                {"NO_PROXY", "10.0.0.0/8"}}));
  access.token.text = "secret";
  open(access);
  const Heard heard = get("/echo");
  EXPECT_EQ(heard.status(), 200) << heard.message();
  const auto asked = proxy.seen();
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].method, "CONNECT");
  EXPECT_EQ(asked[0].path, "api.example:6443");
  EXPECT_EQ(asked[0].header("authorization"), "");
  EXPECT_EQ(server.seen().at(0).header("authorization"), "Bearer secret");
}

TEST_F(TransportTrust, IsForAProxyOfTheClustersAuthority) {
  const ApiStandin server(with_tls());
  const ApiStandin proxy(with_tls("server", {"--proxy-to", std::to_string(server.port())}));
  ClusterAccess access = access_to(server);
  access.proxy = "https://127.0.0.1:" + std::to_string(proxy.port());
  open(access);
  const Heard heard = get("/echo");
  EXPECT_EQ(heard.status(), 200) << heard.message();
  access.authorities = {.text = content("other.pem"), .file = {}};
  open(access);
  const Heard refused = get("/echo");
  EXPECT_EQ(refused.error(), Errc::failed) << refused.message();
  EXPECT_THAT(refused.hint(), HasSubstr("proxy"));
  EXPECT_THAT(proxy.seen(), SizeIs(1)) << "a proxy that is not trusted hears nothing";
}

TEST_F(TransportTrust, TakesNoProxyThatWasNotChosen) {
  const ApiStandin server(with_tls());
  open(access_to(server));
  ASSERT_EQ(::setenv("https_proxy", "http://127.0.0.1:1", 1), 0);
  const Heard heard = get("/echo");
  ASSERT_EQ(::unsetenv("https_proxy"), 0);
  EXPECT_EQ(heard.status(), 200) << heard.message();
}

TEST_F(TransportTrust, SpeaksWithoutTlsToThisMachineAlone) {
  const ApiStandin server({});
  ClusterAccess access = access_to(server);
  access.server.tls = false;
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
}

}  // namespace
}  // namespace ferry::kube
