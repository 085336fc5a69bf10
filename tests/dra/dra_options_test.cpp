// SPDX-License-Identifier: Apache-2.0
#include "dra/dra_options.h"

#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

namespace ferry::dra {
namespace {

using testing::Contains;
using testing::SizeIs;

DraProgramOptions parse(std::vector<std::string> words) {
  CLI::App app;
  DraProgramOptions out;
  add_dra_options(app, out);
  std::ranges::reverse(words);  // as the library takes them
  app.parse(words);
  return out;
}

TEST(DraOptions, ReachTheProgramAsTheyWereGiven) {
  const DraProgramOptions given{.node = "gpu-1",
                                .kubelet_folder = "/data/kubelet of a test",
                                .pod_uid = "-1",
                                .kubeconfig = "config",
                                .context = "lab"};
  EXPECT_EQ(parse(words_of(given)), given);
  CLI::App app;
  DraProgramOptions unused;
  add_dra_options(app, unused);
  EXPECT_THAT(words_of(given), SizeIs(app.get_options().size() - 1)) << "each option but --help";
}

TEST(DraOptions, ThoseThatAreNotGivenAreLeftToTheEnvironment) {
  const auto words = words_of(parse({}));
  EXPECT_THAT(words, SizeIs(1));
  EXPECT_THAT(words, Contains("--kubelet-dir=/var/lib/kubelet"));
}

TEST(DraOptions, FoldersOfTheHostAreAbsolute) {
  EXPECT_THROW(parse({"--kubelet-dir=var/lib/kubelet"}), CLI::ValidationError);
}

}  // namespace
}  // namespace ferry::dra
