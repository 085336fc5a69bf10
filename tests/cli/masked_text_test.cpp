// SPDX-License-Identifier: Apache-2.0
#include "kubectl/masked_text.h"

#include <algorithm>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace ferry::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Row {
  std::string text;
  std::string masked;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.text;
}

class MaskedText : public testing::TestWithParam<Row> {};

TEST_P(MaskedText, HidesWhatCouldBeASecretAndNothingElse) {
  EXPECT_EQ(kubectl::masked_text(GetParam().text), GetParam().masked);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, MaskedText,
    testing::Values(
        Row{"Authorization: Bearer abc.def", "Authorization: ***"},
        Row{"sent 'bearer abc' twice", "sent 'bearer ***' twice"},
        Row{"GET https://user:pw@registry/v2/?sig=abc&x=1: 403", "GET https://***@registry/v2/?*** 403"},
        Row{"a https://u@h b http://v:w@i c", "a https://***@h b http://***@i c"},
        Row{"https://h/a@b", "https://h/a@b"}, Row{"password=abc, user=x", "password=***, user=x"},
        Row{R"({"pullSecret": "a b c", "node": "n1"})", R"({"pullSecret": "***", "node": "n1"})"},
        Row{"--metrics-token-file=/run/t --node-name=n1", "--metrics-token-file=*** --node-name=n1"},
        Row{"run --password hunter2 --user x", "run --password *** --user x"},
        Row{"--token 'a b' --key -v, --api-key", "--token '***' --key -v, --api-key"},
        Row{"a--token b, --node n1 and --password", "a--token b, --node n1 and --password"},
        Row{"link 52:54:00:aB:cd:ef, 52-54-00-12-34-56.", "link ***, ***."},
        Row{"52:54:00:12:34:56: up; mac:52:54:00:12:34:56", "***: up; mac:***"},
        Row{"--metrics-key requires --metrics-address", "--metrics-key requires --metrics-address"},
        Row{"0000:17:00.0 at 12:34:56; 01:02:03:04:05:06:07, 52:54-00:12:34:56",
            "0000:17:00.0 at 12:34:56; 01:02:03:04:05:06:07, 52:54-00:12:34:56"},
        Row{"eyJhbGciOi.eyJzdWIi.c2ln is it", "*** is it"},
        Row{"key AbCdEfGhIjKlMnOpQrStUvWxYz0123456789abcdEFGH= ends", "key *** ends"},
        Row{"with AKIAIOSFODNN7EXAMPLE, glpat-abcdefghij0123456789", "with ***, ***"},
        Row{"sk-proj-AbC0123456789abcdef of pod sk-controller-manager-7d9f8",
            "*** of pod sk-controller-manager-7d9f8"},
        Row{"sk-proj-abc_def-0123456789ab, (sk-proj-abcdefghij-klmnopqr)", "***, (***)"},
        Row{"sk-ant-api03-ab_cd-efghijkl0 sk-ant-admin01-abcdefghij", "*** ***"},
        Row{"'sk-svcacct-ab-cd_efghijklm' sk-admin-abcdefghijklmnop", "'***' ***"},
        Row{"sk-or-v1-0123456789abcdef sk-abcdef_0123456789abcdef", "*** ***"},
        Row{"sk_live_0123456789abcdef rk_live_0123456789abcdef", "*** ***"},
        Row{"AIzaSyA0123456789abcdef-0123456789_abcde or AIza", "*** or AIza"},
        Row{"sk-proj and sk-ant-controller", "sk-proj and sk-ant-controller"},
        Row{"AKIA and glpat-x", "AKIA and glpat-x"},
        Row{"connect 10.0.0.1:6443 and [fe80::1]:80", "connect ***:6443 and [***]:80"},
        // JSON in JSON, as --log-format=json has what others said.
        Row{R"({"msg":"got {\"password\":\"hunter2\",\"a\":\"b\"}"})",
            R"({"msg":"got {\"password\":\"***\",\"a\":\"b\"}"})"},
        Row{R"({"msg":"token: \"abc\" is wrong"})", R"({"msg":"token: \"***\" is wrong"})"},
        Row{R"("password":"a\"b","c":"d")", R"("password":"***","c":"d")"},
        Row{R"({"auths":{"r":{"auth":"dXNlcjpwdw=="}}})", R"({"auths":{"r":{"auth":"***"}}})"},
        Row{"key=abc accessKey: def, secretKey=g", "key=*** accessKey: ***, secretKey=***"},
        Row{R"({"tokens":["a","b"],"c":1})", R"({"tokens":***,"c":1})"}, Row{"pwd = a,b; c", "pwd = ***; c"},
        Row{"> Authorization: Token abc def", "> Authorization: ***"},
        Row{"< Set-Cookie: a=b; c=d", "< Set-Cookie: ***"}, Row{"Basic  dXNlcjpwdw==", "Basic  ***"},
        Row{"https://u:a,b@h/p", "https://***@h/p"}, Row{"https://u:a/b@h: 403", "https://***@h: 403"},
        Row{"https://h:5000/v2/a@sha256:0", "https://h:5000/v2/a@sha256:0"},
        Row{"key wJalrXUtnFEMI/K7MDENG/bPxRfiCYzT8kQ9pLm2RsVw is it", "key *** is it"},
        Row{"q83vEjRWeJCrze/SNFZ4kKvN7xI0VniQq83vEjRWeJA=", "***"},
        Row{"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "***"},
        Row{"from 10.1.2.3. to fe80::1: and 2001:db8::2%eth0", "from ***. to ***: and ***%eth0"},
        Row{"https://10.1.2.3:10250/containerLogs", "https://***:10250/containerLogs"},
        // What support needs.
        Row{"0000:3b:00.0 (group 42): done", "0000:3b:00.0 (group 42): done"},
        Row{"image r/ferry@sha256:3f0e9a1bc0ffee0123456789abcdef0123456789abcdef0123456789abcdef01",
            "image r/ferry@sha256:3f0e9a1bc0ffee0123456789abcdef0123456789abcdef0123456789abcdef01"},
        Row{"vGPU 566b0cda-8c18-5fd3-92cb-496c5a60815f T4-4Q",
            "vGPU 566b0cda-8c18-5fd3-92cb-496c5a60815f T4-4Q"},
        Row{"2026-11-23T06:13:48.123456789Z info bound: nouveau -> vfio-pci",
            "2026-11-23T06:13:48.123456789Z info bound: nouveau -> vfio-pci"},
        Row{"Linux 6.1.0-13-amd64, driver 580.159.04", "Linux 6.1.0-13-amd64, driver 580.159.04"},
        Row{"VBIOS 95.02.66.00.15, 0000:17:00.0, ferry::look",
            "VBIOS 95.02.66.00.15, 0000:17:00.0, ferry::look"},
        Row{"drivers/gpu/drm/nouveau/Nouveau_Bo2.c in drivers/Gpu/Drm/Nouveau/Nouveau_Bo2.c",
            "drivers/gpu/drm/nouveau/Nouveau_Bo2.c in drivers/Gpu/Drm/Nouveau/Nouveau_Bo2.c"},
        Row{"/sys/bus/mdev/devices/566b0cda-8c18-5fd3-92cb-496c5a60815f/NVIDIA_A40-6Q/available_instances",
            "/sys/bus/mdev/devices/566b0cda-8c18-5fd3-92cb-496c5a60815f/NVIDIA_A40-6Q/available_instances"},
        Row{"", ""}, Row{"\n\n", "\n\n"}));

TEST(MaskedBlocks, HideTheInsideOfPem) {
  const std::string masked = kubectl::masked_text("a\n-----BEGIN KEY-----\nMIIB\n-----END KEY-----\nb\n");
  EXPECT_EQ(masked, "a\n***\n***\n***\nb\n");
  EXPECT_EQ(kubectl::masked_text("-----BEGIN X----- MIIB -----END X-----\nb"), "***\nb");
}

TEST(MaskedBlocks, HidePemWhoseBeginningIsCutOff) {
  EXPECT_EQ(kubectl::masked_text("said it\nMIIB\nab+/\n-----END KEY-----\nb\n"),
            "said it\n***\n***\n***\nb\n");
}

TEST(MaskedBlocks, HideNothingBehindALineThatOnlySpeaksOfPem) {
  EXPECT_EQ(kubectl::masked_text("no -----BEGIN CERTIFICATE----- in it\nnode n1: done\nb\n"),
            "***\nnode n1: done\nb\n");
}

TEST(MaskedBlocks, CutLinesThatAreTooLong) {
  const std::string masked = kubectl::masked_text(std::string(100'000, 'a') + "\nb");
  EXPECT_LT(masked.size(), 5'000U);
  EXPECT_THAT(masked, testing::EndsWith(" (cut)\nb"));
}

// It is given what anybody wrote.
TEST(MaskedBlocks, KeepTheirLinesWhateverTheyHold) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp,bugprone-random-generator-seed): the same each time
  const std::vector<std::string> parts = {"token",   "=",   ":",  "\"",   "'", " ",        "://",
                                          "@",       "?",   "\n", "[",    "]", "Bearer ",  "-----BEGIN ",
                                          "1.2.3.4", "eyJ", ".",  "\xff", "a", "-----END "};
  for (int round = 0; round < 2'000; ++round) {
    std::string text;
    for (unsigned i = 0; i < 40; ++i) text += parts[random() % parts.size()];
    EXPECT_EQ(std::ranges::count(kubectl::masked_text(text), '\n'), std::ranges::count(text, '\n')) << text;
    EXPECT_THAT(kubectl::masked_text("password=hunter2\n" + text), Not(HasSubstr("hunter2")));
  }
}

}  // namespace
}  // namespace ferry::cli
