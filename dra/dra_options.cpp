// SPDX-License-Identifier: Apache-2.0
#include "dra/dra_options.h"

#include <CLI/CLI.hpp>

namespace ferry::dra {
namespace {

void add_word(const char* option, const std::string& value, std::vector<std::string>& out) {
  // A value may begin with a dash, so "=" joins it to its option.
  if (!value.empty()) out.push_back(std::string(option) + "=" + value);
}

}  // namespace

void add_dra_options(CLI::App& app, DraProgramOptions& options) {
  app.add_option("--node-name", options.node,
                 "the name of the Node that this host is; the default is $NODE_NAME")
      ->option_text("NAME");
  app.add_option("--kubelet-dir", options.kubelet_folder,
                 "the kubelet's own folder on the host, which has its folders for plugins")
      ->check([](const std::string& path) {
        // The kubelet reads it on the host, so it cannot depend on a working directory.
        return std::filesystem::path(path).is_absolute() ? std::string() : path + " is no absolute path";
      })
      ->option_text("DIR [/var/lib/kubelet]");
  app.add_option("--pod-uid", options.pod_uid,
                 "the UID of the pod of this program, for sockets of its own; the default is $POD_UID, and "
                 "without it all have the same names")
      ->option_text("UID");
  app.add_option("--kubeconfig", options.kubeconfig,
                 "how to reach the API server; the default is $KUBECONFIG, then the pod's own account, then "
                 "~/.kube/config")
      ->option_text("FILE");
  app.add_option("--context", options.context, "the context of that file; the default is its current context")
      ->option_text("NAME");
}

std::vector<std::string> words_of(const DraProgramOptions& options) {
  std::vector<std::string> out;
  add_word("--node-name", options.node, out);
  add_word("--kubelet-dir", options.kubelet_folder.string(), out);
  add_word("--pod-uid", options.pod_uid, out);
  add_word("--kubeconfig", options.kubeconfig.string(), out);
  add_word("--context", options.context, out);
  return out;
}

}  // namespace ferry::dra
