// SPDX-License-Identifier: Apache-2.0
// The commands for whole GPUs and for vGPUs.
#include "cli/commands/command_tree.h"
#include "cli/completion/command_model.h"
#include "cli/options/value_option.h"

namespace ferry::cli {

void CommandTree::add_selection(CLI::App* verb) {
  verb->add_flag(
      "--all", selection_.all,
      "every accelerator; bind leaves out those with vGPUs, and those whose driver offers vGPU types");
  add_value(*verb, "--device ADDRESS ...", selection_.devices,
            "this accelerator, such as 0000:3b:00.0; may be repeated");
  add_value(*verb, "--group NUMBER ...", selection_.groups,
            "the accelerators of this IOMMU group; may be repeated");
  add_value(*verb, "--vendor VENDOR ...", selection_.filter.vendors,
            "the accelerators of this vendor, such as 10de or nvidia; may be repeated");
  suggest_words(add_value(*verb, "--class CLASS ...", selection_.filter.classes,
                          "the accelerators of this class: 0302, vga, 3d or nvswitch; may be repeated"),
                {"vga", "3d", "nvswitch"});
  add_value(*verb, "--model MODEL ...", selection_.filter.models,
            "the accelerators of this model, such as '*H100*' or 10de:2330; may be repeated");
  add_value(*verb, "--numa NODE ...", selection_.filter.numa_nodes,
            "the accelerators on this NUMA node; may be repeated");
  add_value(
      *verb, "--with ADDRESS ...", selection_.with,
      "this audio, USB or USB-C function of the group or the slot is of the card, too; may be repeated");
  verb->footer(
      "Name accelerators by --device or --group. Or choose among all by --all, --vendor, --class, --model "
      "and --numa: an accelerator has to match each of these options that is given, and one of the values of "
      "a repeated option.");
}

void CommandTree::add_vfio() {
  CLI::App* vfio = add_group("vfio", "bind whole GPUs to vfio-pci by IOMMU group, and unbind them");
  const auto to_vfio = [this](const Session& session) {
    return bind_verb(session, selection_, vfio::Direction::to_vfio);
  };
  CLI::App* plan = add_plan_verb(*vfio, "print what bind would do, and write nothing", to_vfio);
  add_selection(plan);
  CLI::App* bind =
      add_changing_verb(*vfio, "bind", "bind accelerators and their IOMMU groups to vfio", to_vfio);
  add_selection(bind);
  add_yes(bind, selection_.yes);
  for (CLI::App* verb : {plan, bind}) {
    verb->add_flag("--force", selection_.force,
                   "include a device on which only a screen depends, which then stays dark; a device in use "
                   "is refused all the same");
    add_release(verb, selection_.release);
  }
  add_selection(add_changing_verb(
      *vfio, "unbind", "return accelerators and their groups to the drivers that they had",
      [this](const Session& session) { return bind_verb(session, selection_, vfio::Direction::back); }));
  add_selection(add_changing_verb(
      *vfio, "restore", "return all that Ferry has bound, or the chosen part, to the earlier drivers",
      call_with(restore_verb, selection_)));
}

void CommandTree::add_profile(CLI::App* verb) {
  add_value(*verb, "-f,--file FILE", profile_.file, "the profile file or ConfigMap; - is standard input")
      ->required();
  add_value(*verb, "-c,--config NAME", profile_.name,
            "the profile; a file with a single profile needs no name");
  verb->add_flag("--lenient", profile_.lenient,
                 "accept the faults that NVIDIA's program accepts, such as a repeated key, with a warning");
}

void CommandTree::add_profile_of_node(CLI::App* verb) {
  add_profile(verb);
  add_value(*verb, "--node FILE", profile_.node,
            "a Node object, whose label nvidia.com/vgpu.config names the profile");
  add_value(*verb, "--default NAME", profile_.otherwise, "the profile of a Node without that label");
}

void CommandTree::add_vgpu() {
  CLI::App* vgpu = add_group("vgpu", "make vGPUs by a profile");
  add_verb(*vgpu, "types", "list the vGPU types that each GPU can be divided into now", vgpu_types_verb);
  CLI::App* validate =
      add_verb(*vgpu, "validate", "check a profile file, alone or against this host",
               [this](const Session& session) { return vgpu_validate_verb(session, profile_, on_host_); });
  add_profile(validate);
  validate->add_flag("--host", on_host_, "also print which parts of the profile this host cannot do");
  const auto to_profile = call_with(vgpu_apply_verb, profile_);
  CLI::App* plan = add_plan_verb(*vgpu, "print what apply would do, and write nothing", to_profile);
  CLI::App* apply = add_changing_verb(
      *vgpu, "apply", "make and remove vGPUs until the host has those of a profile", to_profile);
  for (CLI::App* verb : {plan, apply}) {
    add_profile_of_node(verb);
    add_release(verb, profile_.release);
    add_foreign(verb);
  }
  add_profile_of_node(add_verb(*vgpu, "assert",
                               "compare the host with a profile; the exit status is 3 if they differ",
                               call_with(vgpu_assert_verb, profile_)));
  add_verb(*vgpu, "export", "print the vGPUs of the host as a profile for apply and assert",
           call_with(vgpu_export_verb, export_name_))
      ->add_option("-c,--config", export_name_, "the name of the printed profile")
      ->option_text("NAME [current]");
  add_vgpu_choose(*vgpu);
  CLI::App* remove =
      add_changing_verb(*vgpu, "delete", "remove vGPUs", call_with(vgpu_delete_verb, vgpu_delete_));
  remove->add_flag("--all", vgpu_delete_.all, "remove the vGPUs of every GPU");
  add_value(*remove, "--device ADDRESS ...", vgpu_delete_.devices,
            "remove the vGPUs of this GPU; may be repeated");
  remove->add_flag("--foreign", vgpu_delete_.foreign, "also remove vGPUs that Ferry did not make");
  add_yes(remove, vgpu_delete_.yes);
}

void CommandTree::add_vgpu_choose(CLI::App& vgpu) {
  CLI::App* choose = add_verb(
      vgpu, "choose", "find the smallest vGPU type with enough memory, and how many can still be made",
      call_with(vgpu_choose_verb, vgpu_choose_));
  add_value(*choose, "--memory AMOUNT", vgpu_choose_.memory,
            "the least memory of the vGPU, such as 6GiB or 4096MiB; 6G means 6,000,000,000 bytes")
      ->required();
  suggest_words(add_value(*choose, "--series SERIES", vgpu_choose_.series,
                          "the series of the type: Q, C, B or A; the default is any, and Q first"),
                {"Q", "C", "B", "A"});
  add_value(*choose, "--device ADDRESS ...", vgpu_choose_.devices,
            "only this GPU; may be repeated; the default is all GPUs");
}

}  // namespace ferry::cli
