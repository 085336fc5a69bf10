// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "agent/labels/feature_labels.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using std::chrono::sys_days;
using std::chrono::year;
using test::must;

constexpr auto kDay = sys_days(year(2026) / 2 / 28);

TEST(FeatureFile, HasALineForEachLabelAndAnEnd) {
  EXPECT_EQ(feature_file_text({{"nvidia.com/gpu.count", "2"}, {"gpu-ferry.io/iommu.mode", "on"}},
                              kDay + std::chrono::hours(9) + std::chrono::seconds(7)),
            "# What Ferry's agent knows of this node's GPUs.\n"
            "# +expiry-time=2026-02-28T09:00:07Z\n"
            "gpu-ferry.io/iommu.mode=on\n"
            "nvidia.com/gpu.count=2\n");
}

TEST(FeatureFile, IsGoodForADayAndGoesWithTheLastLabel) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  must(write_feature_file(host, {}, kDay));
  EXPECT_FALSE(host.exists(kFeatureFile));
  must(write_feature_file(host, {{"a/b", "c"}}, kDay));
  EXPECT_EQ(must(host.read_file(kFeatureFile)),
            "# What Ferry's agent knows of this node's GPUs.\n"
            "# +expiry-time=2026-03-01T00:00:00Z\n"
            "a/b=c\n");
  must(write_feature_file(host, {}, kDay));
  EXPECT_FALSE(host.exists(kFeatureFile));
}

}  // namespace
}  // namespace ferry::agent
