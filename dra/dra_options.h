// SPDX-License-Identifier: Apache-2.0
// The options of ferry-dra's command line. `ferry dra` parses the same list and passes it on, so there is no
// second list.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace ferry::dra {

struct DraProgramOptions {
  std::string node;                                           ///< the Node's name; empty: not given
  std::filesystem::path kubelet_folder = "/var/lib/kubelet";  ///< on the host
  std::string pod_uid;                                        ///< DraServer::Settings::pod_uid
  std::filesystem::path kubeconfig;                           ///< AccessChoice::kubeconfig
  std::string context;                                        ///< AccessChoice::context
  bool operator==(const DraProgramOptions&) const = default;
};

/// Adds the options to a command line. --host-root and the log options are not among them: each program has
/// its own. `app` and `options` must outlive the parsing.
void add_dra_options(CLI::App& app, DraProgramOptions& options);

/// The options as words for the command line of ferry-dra. An option with an empty value is left out, so that
/// its variable in the environment counts.
std::vector<std::string> words_of(const DraProgramOptions& options);

}  // namespace ferry::dra
