// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "kata-manager/artifacts/fetch_request.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

constexpr const char* kNew = R"({"auths":{"r.example":{"username":"u","password":"p"}}})";
constexpr const char* kOld = R"({"r.example":{"username":"u","password":"p"}})";

class PullSecret : public testing::Test {
 protected:
  Result<std::string> read(const std::string& name) const { return read_pull_secret(scratch.path(), name); }
  Error refused(const std::string& name) const {
    const auto secret = read(name);
    return secret ? Error{.code = {}, .message = "it was read", .hint = {}} : secret.error();
  }

  test::ScratchDirectory scratch;
};

TEST_F(PullSecret, IsTheFileOfItsKeyInTheFolderOfItsName) {
  scratch.file("first/.dockerconfigjson", kNew);
  scratch.file("older/.dockercfg", kOld);
  EXPECT_EQ(read("first").value_or(""), kNew);
  EXPECT_EQ(read("older").value_or(""), kOld);
}

// The kubelet's own way: the key is a link to one of a folder that is changed as a whole.
TEST_F(PullSecret, IsReadAsTheKubeletMountsIt) {
  scratch.file("pull/..2026_11_21/.dockerconfigjson", kNew);
  scratch.link("pull/..data", "..2026_11_21");
  scratch.link("pull/.dockerconfigjson", "..data/.dockerconfigjson");
  EXPECT_EQ(read("pull").value_or(""), kNew);
}

TEST_F(PullSecret, ThatIsNotThereIsSaid) {
  const Error missing = refused("pull");
  EXPECT_EQ(missing.code, make_error_code(Errc::invalid_config));
  EXPECT_THAT(missing.message, AllOf(HasSubstr("the Secret pull: "), EndsWith("/pull is not there")));
  EXPECT_THAT(missing.hint, HasSubstr(".dockerconfigjson"));
  scratch.file("pull/config.json", kNew);
  EXPECT_THAT(refused("pull").message, EndsWith("/pull has neither .dockerconfigjson nor .dockercfg"));
  scratch.file("pull/.dockercfg/inner", kNew);
  EXPECT_THAT(refused("pull").message, AllOf(HasSubstr("the Secret pull: "), HasSubstr("s a directory")));
}

// Empty credentials would be taken for none, and the registry asked without any.
TEST_F(PullSecret, ThatIsEmptyIsSaid) {
  for (const char* nothing : {"", " \n"}) {
    scratch.file("pull/.dockerconfigjson", nothing);
    EXPECT_THAT(refused("pull").message, EndsWith(".dockerconfigjson is empty"));
  }
}

}  // namespace
}  // namespace ferry::kata
