// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kube/cluster_access.h"
#include "tests/support/must.h"

namespace ferry::kube {
namespace {

using test::must;

TEST(ServerAddressText, IsTakenApartAndPutTogether) {
  for (const auto& [url, text] :
       {std::pair{"https://10.96.0.1", "https://10.96.0.1:443"},
        {"https://API.Example:6443/", "https://api.example:6443"},
        {"https://[FD00::1]", "https://[fd00::1]:443"},
        {"https://[::1]:65535/k8s/clusters/c-1/", "https://[::1]:65535/k8s/clusters/c-1"},
        {"http://localhost", "http://localhost:80"},
        {"http://127.0.0.2:8001", "http://127.0.0.2:8001"}}) {
    EXPECT_EQ(must(ServerAddress::parse(url)).text(), text);
    EXPECT_EQ(must(ServerAddress::parse(text)), must(ServerAddress::parse(url)));
  }
  EXPECT_EQ(must(ServerAddress::parse("https://[fd00::1]:7")).host, "fd00::1");
}

TEST(ServerAddressText, IsRefusedWhereItIsNone) {
  for (const char* url : {"",
                          "https://",
                          "https:///x",
                          "10.96.0.1:443",
                          "ftp://a",
                          "HTTPS:/a",
                          "https://a:",
                          "https://a:0",
                          "https://a:65536",
                          "https://a:-1",
                          "https://a:+1",
                          "https://a:1x",
                          "https://a b",
                          "https://a?x",
                          "https://a/?x",
                          "https://a/#x",
                          "https://a/b c",
                          "https://a/\xc3\xa4",
                          "https://[::1",
                          "https://[::1]x",
                          "https://[::1]:",
                          "https://[1.2.3.4]",
                          "https://[a]",
                          "https://::1",
                          "https://[fe80::1%eth0]",
                          "https://a\\b",
                          "https://a\nb",
                          "https://*"}) {
    const auto address = ServerAddress::parse(url);
    ASSERT_FALSE(address.has_value()) << url;
    EXPECT_EQ(address.error().code, Errc::usage) << url;
  }
  EXPECT_FALSE(ServerAddress::parse(std::string_view("https://127.0.0.1\0.evil", 23)).has_value());
  const auto secret = ServerAddress::parse("https://user:hunter2@a");
  ASSERT_FALSE(secret.has_value());
  EXPECT_EQ(secret.error().message.find("hunter2"), std::string::npos);
}

TEST(ServerAddressText, IsOfThisMachineOnlyWhereThatIsSure) {
  for (const char* url : {"http://localhost:1", "http://127.0.0.1", "http://127.1.2.3", "http://[::1]"})
    EXPECT_TRUE(must(ServerAddress::parse(url)).is_loopback()) << url;
  for (const char* url : {"http://localhost.example", "http://128.0.0.1", "http://127.1", "http://0127.0.0.1",
                          "http://[::ffff:127.0.0.1]", "http://[::]", "http://127.0.0.1.example"})
    EXPECT_FALSE(must(ServerAddress::parse(url)).is_loopback()) << url;
}

TEST(Proxy, IsOfThreeKinds) {
  EXPECT_EQ(must(proxy_url("http://proxy:3128/")), "http://proxy:3128");
  EXPECT_EQ(must(proxy_url("https://u:p@proxy")), "https://u:p@proxy");
  EXPECT_EQ(must(proxy_url("socks5://[::1]:1080")), "socks5h://[::1]:1080");
  for (const char* url : {"", "proxy:3128", "ftp://proxy", "http://", "http://a b", "http://a:0",
                          "http://a/path", "http://u:hunter2@", "http://a\n"}) {
    const auto proxy = proxy_url(url);
    ASSERT_FALSE(proxy.has_value()) << url;
    EXPECT_EQ(proxy.error().code, Errc::usage);
    EXPECT_EQ(proxy.error().message.find("hunter2"), std::string::npos);
  }
}

std::string proxy_for(const std::string& server, const Environment& environment) {
  return must(proxy_of_environment(must(ServerAddress::parse(server)), environment));
}

TEST(Proxy, IsWhatTheEnvironmentSays) {
  EXPECT_EQ(proxy_for("https://a", {}), "");
  EXPECT_EQ(proxy_for("https://a", {{"HTTPS_PROXY", "proxy:1"}}), "http://proxy:1");
  EXPECT_EQ(proxy_for("https://a", {{"https_proxy", "https://proxy"}}), "https://proxy");
  EXPECT_EQ(proxy_for("https://a", {{"HTTPS_PROXY", ""}, {"https_proxy", "b:1"}}), "http://b:1");
  EXPECT_EQ(proxy_for("https://a", {{"HTTP_PROXY", "proxy:1"}, {"ALL_PROXY", "proxy:1"}}), "");
  const auto wrong = proxy_of_environment(must(ServerAddress::parse("https://a")),
                                          {{"https_proxy", "gopher://u:hunter2@a"}});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message, "https_proxy: it is not the URL of a proxy");
}

struct Exempt {
  const char* server;
  const char* list;
  bool exempt;
};
void PrintTo(const Exempt& row, std::ostream* out) {
  *out << row.server << " by " << row.list;
}
class NoProxy : public testing::TestWithParam<Exempt> {};

TEST_P(NoProxy, IsReadAsTheRestOfKubernetesReadsIt) {
  const auto& [server, list, exempt] = GetParam();
  EXPECT_EQ(proxy_for(server, {{"HTTPS_PROXY", "proxy:1"}, {"NO_PROXY", list}}),
            exempt ? "" : "http://proxy:1");
}

INSTANTIATE_TEST_SUITE_P(
    Table, NoProxy,
    testing::Values(
        Exempt{"https://127.0.0.1", "", true}, Exempt{"https://localhost:6443", "x", true},
        Exempt{"https://[::1]", "x", true}, Exempt{"https://10.96.0.1", "", false},
        Exempt{"https://10.96.0.1", "*", true}, Exempt{"https://10.96.0.1", "10.96.0.1", true},
        Exempt{"https://10.96.0.1", "10.96.0.10", false}, Exempt{"https://10.96.0.1", "10.96.0.0/12", true},
        Exempt{"https://10.96.0.1", "10.112.0.0/12", false}, Exempt{"https://10.96.0.1", "0.0.0.0/0", true},
        Exempt{"https://10.96.0.1", "10.96.0.0/33", false}, Exempt{"https://10.96.0.1", "10.96.0.0/", false},
        Exempt{"https://10.96.0.1", "10.96.0.0/8x", false}, Exempt{"https://10.96.0.1", "::/0", false},
        Exempt{"https://10.96.0.1", "a, 10.0.0.0/8 ,b", true},
        Exempt{"https://10.96.0.1:6443", "10.96.0.1:6443", true},
        Exempt{"https://10.96.0.1:443", "10.96.0.1:6443", false}, Exempt{"https://10.96.0.1", "10", false},
        Exempt{"https://[fd00::1]", "fd00::/8", true}, Exempt{"https://[fd00::1]", "fd00:0::1", true},
        Exempt{"https://[fd00::1]", "[fd00::1]:443", true}, Exempt{"https://[fd00::1]", "fc00::/8", false},
        Exempt{"https://api.example", "example", true}, Exempt{"https://api.example", "API.Example", true},
        Exempt{"https://api.example", ".example", true}, Exempt{"https://api.example", "*.example", true},
        Exempt{"https://example", ".example", false}, Exempt{"https://example", "*.example", false},
        Exempt{"https://api.example", "i.example", false}, Exempt{"https://api.example", "pi.example", false},
        Exempt{"https://api.example", "example:443", true},
        Exempt{"https://api.example", "example:80", false}, Exempt{"https://api.example", ",,", false},
        Exempt{"https://api.example", ":443", false}));

}  // namespace
}  // namespace ferry::kube
