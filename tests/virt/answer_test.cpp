// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "virt/virt_client.h"

namespace ferry::virt {
namespace {

using test::must;
using testing::HasSubstr;

std::vector<Domain> some_domains() {
  return {{.name = "a \"b\"",
           .uuid = "u1",
           .pid = 412,
           .pci = {must(vfio::PciAddress::parse("0000:01:00.0"))},
           .mdev = {}},
          {.name = "c", .uuid = "u2", .pid = {}, .pci = {}, .mdev = {"m1", "m2"}}};
}

TEST(VirtAnswer, GivesDomainsInTheirDocumentedForm) {
  EXPECT_EQ(answer_text(some_domains()),
            R"({"domains":[{"name":"a \"b\"","uuid":"u1","pid":412,"pci":["0000:01:00.0"],"mdev":[]},)"
            R"({"name":"c","uuid":"u2","pci":[],"mdev":["m1","m2"]}]})"
            "\n");
  EXPECT_EQ(answer_text(std::vector<Domain>{}), "{\"domains\":[]}\n");
}

TEST(VirtAnswer, IsReadBackAsItWasWritten) {
  EXPECT_EQ(must(read_domains_answer(answer_text(some_domains()))), some_domains());
}

TEST(VirtAnswer, HasAnErrorWithItsCodeAndHint) {
  for (const Errc code : {Errc::usage, Errc::not_found, Errc::refused, Errc::unreachable, Errc::unsupported,
                          Errc::malformed_host, Errc::failed}) {
    const Error error{.code = make_error_code(code), .message = "what", .hint = "how"};
    const auto read = read_domains_answer(answer_text(error));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, code);
    EXPECT_EQ(read.error().message, "what");
    EXPECT_EQ(read.error().hint, "how");
  }
}

TEST(VirtAnswer, TakesAnUnknownOrForeignErrorCodeForAFailure) {
  EXPECT_EQ(read_domains_answer(R"({"error":{"code":"later","message":"m"}})").error().code, Errc::failed);
  EXPECT_EQ(read_domains_answer(answer_text(error_from_errno(5, "read x"))).error().code, Errc::failed);
}

TEST(VirtAnswer, SurvivesBytesThatAreNoUtf8) {
  const Error error{.code = make_error_code(Errc::failed), .message = "a\xff\nb", .hint = {}};
  EXPECT_EQ(read_domains_answer(answer_text(error)).error().message, "a\xef\xbf\xbd\nb");
}

struct Row {
  const char* name;
  const char* text;
  const char* why;
};
class MalformedAnswer : public testing::TestWithParam<Row> {};

TEST_P(MalformedAnswer, IsAnErrorAndNeverAnEmptyList) {
  const auto domains = read_domains_answer(GetParam().text);
  ASSERT_FALSE(domains);
  EXPECT_EQ(domains.error().code, Errc::malformed_host);
  EXPECT_THAT(domains.error().message, HasSubstr(GetParam().why));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, MalformedAnswer,
    testing::Values(Row{"Empty", "", "not JSON"}, Row{"NoJson", "libvirt: error", "not JSON"},
                    Row{"CutOff", R"({"domains":[{"name":"a")", "not JSON"},
                    Row{"TwoAnswers", "{}{}", "not JSON"}, Row{"Null", "null", "cannot use at() with null"},
                    Row{"AnotherObject", "{}", "domains"}, Row{"NoList", R"({"domains":7})", "type"},
                    Row{"NoName", R"({"domains":[{"uuid":"u","pci":[],"mdev":[]}]})", "name"},
                    Row{"NoPci", R"({"domains":[{"name":"a","uuid":"u","mdev":[]}]})", "pci"},
                    Row{"NumberAsAddress", R"({"domains":[{"name":"a","uuid":"u","pci":[1],"mdev":[]}]})",
                        "actual type is number"},
                    Row{"NoAddress", R"({"domains":[{"name":"a","uuid":"u","pci":["zz"],"mdev":[]}]})", "zz"},
                    Row{"TextAsPid", R"({"domains":[{"name":"a","uuid":"u","pid":"1","pci":[],"mdev":[]}]})",
                        "is no process ID"},
                    Row{"PidWithAFraction",
                        R"({"domains":[{"name":"a","uuid":"u","pid":1.5,"pci":[],"mdev":[]}]})",
                        "1.5 is no process ID"},
                    Row{"Brackets", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested deeper than 32 levels"},
                    Row{"ErrorWithoutMessage", R"({"error":{"code":"failed"}})", "message"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::virt
