// SPDX-License-Identifier: Apache-2.0
#include "cli/output/claims_report.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kBoot = "0e7c5d1f-2f3a-4a55-9f0e-6a1f0b7c1e22";

dra::CheckpointClaim claim_with_two() {
  dra::CheckpointClaim claim{
      .uid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711", .space = "studio", .name = "render-a"};
  claim.phase = dra::CheckpointPhase::prepared;
  dra::ClaimDevice whole;
  whole.request = "first";
  whole.pool = "node7/gpu-ferry";
  whole.gpu = {.domain = 0, .bus = 0x3b, .device = 0, .function = 0};
  whole.device.name = "whole-0000-3b-00-0";
  whole.device.attributes = {{dra::kType, std::string(dra::kWhole)}, {"profile", std::string()}};
  whole.id = whole.gpu.text();
  dra::ClaimDevice vgpu;
  vgpu.request = "second";
  vgpu.pool = "node7/gpu-ferry";
  vgpu.gpu = {.domain = 0, .bus = 0xaf, .device = 0, .function = 0};
  vgpu.type = "nvidia-1150";
  vgpu.device.name = "vgpu-0000-af-00-0-1150-0";
  vgpu.device.attributes = {{dra::kType, std::string(dra::kVgpu)},
                            {"profile", std::string("NVIDIA L40S-6Q")}};
  vgpu.id = "b7064fe1-6802-5216-8eb4-f5580c656c4f";
  claim.devices = {whole, vgpu};
  return claim;
}

class ClaimsReport : public testing::Test {
 protected:
  ClaimsReport() { scratch.file("proc/sys/kernel/random/boot_id", std::string(kBoot) + "\n"); }
  void checkpoint(const std::string& boot) const {
    scratch.file(api::kCheckpointFile, dra::checkpoint_text({.boot_id = boot, .claims = {claim_with_two()}}));
  }
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(ClaimsReport, IsEmptyWithoutClaims) {
  EXPECT_THAT(claims_text(read_claims(host), {}), IsEmpty());
}

TEST_F(ClaimsReport, HasARowForEachDevice) {
  checkpoint(kBoot);
  const auto claims = test::must(read_claims(host));
  const std::string text = claims_text(claims, {});
  EXPECT_THAT(text, HasSubstr("studio/render-a"));
  EXPECT_THAT(text, HasSubstr("0000:3b:00.0"));
  EXPECT_THAT(text, HasSubstr("NVIDIA L40S-6Q"));
  EXPECT_THAT(text, HasSubstr("b7064fe1-6802-5216-8eb4-f5580c656c4f"));
  const auto document = claims_document(claims);
  ASSERT_EQ(document.size(), 1U);
  EXPECT_EQ(document[0]["phase"], "prepared");
  EXPECT_EQ(document[0]["devices"][0]["kind"], "whole");
  EXPECT_EQ(document[0]["devices"][0]["id"], "0000:3b:00.0");
  EXPECT_EQ(document[0]["devices"][1]["kind"], "NVIDIA L40S-6Q");
}

TEST_F(ClaimsReport, HasNoneOfAnotherBoot) {
  checkpoint("a7e0c3aa-0000-4a3e-8d55-9d1f5a0c7711");
  EXPECT_THAT(claims_text(read_claims(host), {}), IsEmpty());
}

TEST_F(ClaimsReport, SaysWhyTheyAreNotKnown) {
  scratch.file(api::kCheckpointFile, "{\"version\": 1");
  EXPECT_THAT(claims_text(read_claims(host), {}),
              HasSubstr("note: claims: /run/ferry/dra/claims.json: not JSON"));
  EXPECT_FALSE(read_claims(host));
  std::filesystem::resize_file(scratch.path() / api::kCheckpointFile, std::uintmax_t{1} << 40U);
  EXPECT_THAT(
      claims_text(read_claims(host), {}),
      HasSubstr("note: claims: read /run/ferry/dra/claims.json: File too large; `ferry dra` writes it"));
}

TEST_F(ClaimsReport, FollowsNoLinkOfAnotherUser) {
  scratch.file("etc/secret", "secret");
  scratch.link(api::kCheckpointFile, "../../../etc/secret");
  const std::string text = claims_text(read_claims(host), {});
  EXPECT_THAT(text, HasSubstr("note: claims: "));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace ferry::cli
