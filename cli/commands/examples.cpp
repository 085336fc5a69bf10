// SPDX-License-Identifier: Apache-2.0
// The examples in help, and the meaning of the exit statuses.
#include <array>

#include "cli/command_line.h"

namespace ferry::cli {
namespace {

constexpr std::array kExamples = {
    Example{"status", "List the accelerators of this host", "ferry status"},
    Example{"explain", "Find the device user of a GPU", "ferry explain 0000:3b:00.0"},
    Example{"doctor", "Look for a reason why this host cannot give its GPUs to VMs", "ferry doctor"},
    Example{"apply", "Look at the change before you make it", "ferry apply -f policy.yaml --dry-run"},
    Example{"apply", "Give each GPU its mode of the policy", "ferry apply -f policy.yaml"},
    Example{"assert", "Compare the node with the policy", "ferry assert -f policy.yaml"},
    Example{"export", "Print the state of the node as a policy file", "ferry export"},
    Example{"convert", "Print a vGPU profile of NVIDIA as a policy file",
            "ferry convert -f vgpu-config.yaml -c L40S-12Q"},
    Example{"hostd", "Look at the change before you make it", "ferry hostd --dry-run"},
    Example{"hostd", "Apply the desired state once", "ferry hostd --once"},
    Example{"vfio plan", "Look at the change before you make it", "ferry vfio plan --model '*L40S*'"},
    Example{"vfio plan", "Look for the reason of a refusal", "ferry vfio plan --device 0000:05:01.0"},
    Example{"vfio bind", "Look at the change before you make it",
            "ferry vfio bind --device 0000:3b:00.0 --dry-run"},
    Example{"vfio bind", "Give a GPU to VMs", "ferry vfio bind --device 0000:3b:00.0"},
    Example{"vfio bind", "Bind every L40S, and stop NVIDIA's monitoring during the change",
            "ferry vfio bind --model '*L40S*' --release nvidia-dcgm"},
    Example{"vfio bind", "Include a USB controller of the card that has another vendor",
            "ferry vfio bind --device 0000:05:00.0 --with 0000:05:00.3"},
    Example{"vfio unbind", "Take a GPU back", "ferry vfio unbind --device 0000:3b:00.0"},
    Example{"vfio restore", "Return all functions that Ferry has bound to their earlier drivers",
            "ferry vfio restore"},
    Example{"vgpu types", "List the vGPU types of this host", "ferry vgpu types"},
    Example{"vgpu validate", "Check a profile against this host",
            "ferry vgpu validate --host -f vgpu-config.yaml -c L40S-24Q"},
    Example{"vgpu plan", "Look at the change before you make it",
            "ferry vgpu plan -f vgpu-config.yaml -c L40S-24Q"},
    Example{"vgpu apply", "Make the vGPUs of the profile",
            "ferry vgpu apply -f vgpu-config.yaml -c L40S-24Q"},
    Example{"vgpu assert", "Compare the host with the profile",
            "ferry vgpu assert -f vgpu-config.yaml -c L40S-24Q"},
    Example{"vgpu export", "Print the vGPUs of the host as a profile file", "ferry vgpu export"},
    Example{"vgpu choose", "Find the type that fits a VM with 6 GiB",
            "ferry vgpu choose --memory 6GiB --series Q"},
    Example{"vgpu delete", "Remove Ferry's vGPUs from every GPU on which none of them is in use",
            "ferry vgpu delete --all"},
    Example{"plugin", "Advertise a model under a name of your own", "ferry plugin --alias 10de:26b9=l40s"},
    Example{"agent", "Print the desired state of a node, and the labels that the cluster would get",
            "ferry agent --once --node-file node.yaml --dry-run"},
    Example{"dra", "Serve the ResourceClaims of a node", "ferry dra --node-name gpu-1"},
    Example{"claims list", "List the claims that have devices of this host", "ferry claims list"},
    Example{"claims release", "Look at the change before you make it",
            "ferry claims release 5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711 --dry-run"},
    Example{"claims release", "Release the devices of a claim after `ferry dra` was removed",
            "ferry claims release 5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711"},
    Example{"history", "List the users of a GPU and the resets between them", "ferry history 0000:3b:00.0"},
    Example{"sanitize", "Reset a GPU again that could not be sanitized", "ferry sanitize 0000:3b:00.0"},
    Example{"sanitize", "Release it without a proof", "ferry sanitize 0000:3b:00.0 --accept"},
    Example{"cc plan", "Look which GPUs would be switched", "ferry cc plan on"},
    Example{"cc set", "Turn confidential computing off on one GPU", "ferry cc set off --device 0000:3b:00.0"},
    Example{"kubevirt-cr", "Print the entries that KubeVirt needs for the GPUs of this host",
            "ferry kubevirt-cr"},
    Example{"kubevirt-cr", "Write them for `kubectl ferry kubevirt-cr --check`",
            "ferry kubevirt-cr -o json > node.json"},
    Example{"kata plan", "Look at all differences before you install",
            "ferry kata plan -f classes.yaml --containerd-version 1.7.24"},
    Example{"kata install", "Install the classes", "ferry kata install -f classes.yaml"},
    Example{"kata uninstall", "Remove the classes, and wait up to 5 minutes for their pods",
            "ferry kata uninstall --wait 300"},
    Example{"kata status", "List the classes and their pods", "ferry kata status"},
    Example{"kata verify", "Compare the host with the class file",
            "ferry kata verify -f classes.yaml --containerd-version 1.7.24"},
    Example{"kata runtimeclass", "Create the RuntimeClass objects in the cluster",
            "ferry kata runtimeclass -f classes.yaml | kubectl apply -f -"},
    Example{"completion", "Complete command lines of bash for all users",
            "ferry completion bash > /usr/share/bash-completion/completions/ferry"},
    Example{"help", "Print the options and examples of a command", "ferry help vfio bind"},
    Example{"version", "Print the version", "ferry version"}};

constexpr std::array kFormerWords = {
    FormerWord{"", "selftest",
               "start a VM of your own with the GPU, and run `lspci -nn` in it; Ferry's tests do so: "
               "tests/node/run tests/node/scenarios/selftest.toml, in the source tree"},
    FormerWord{
        "status", "--capture",
        "run `scripts/capture-host DIR` of the source tree as root; it needs bash and coreutils alone"}};

constexpr std::array kStatuses = {
    StatusMeaning{"0", "done, or there was nothing to do"},
    StatusMeaning{"1", "failed; for doctor: no GPU is ready"},
    StatusMeaning{"2", "the command line is wrong, or a file is invalid on any host"},
    StatusMeaning{"3", "assert, vgpu assert or kata verify found a difference"},
    StatusMeaning{"4",
                  "refused: the device is in use, or its present state does not permit the change; nothing "
                  "was written for that group or GPU"}};

}  // namespace

HelpFrame help_frame() {
  return {.program = "ferry", .examples = kExamples, .statuses = kStatuses, .former_words = kFormerWords};
}

}  // namespace ferry::cli
