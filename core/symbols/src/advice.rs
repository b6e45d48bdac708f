//! What the user of a compiler can do where a module has neither DWARF nor a source map.

use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;

/// Returns what to do, by what has sampled it and by the compiler that the module shows to be of.
pub(super) fn of(image: &ModuleImage, sampler: &str) -> &'static str {
    if image.is_stand_in() && sampler == "inside" {
        return "give the file that it was compiled from to Profiler::add";
    }
    if image.is_stand_in() {
        return "give the file that it was compiled from with --guest";
    }
    const ASSEMBLYSCRIPT: &str = "compile with asc --sourceMap --debug, and keep the map beside the module";
    let has_section = |name: &str| image.custom_section(name).is_some();
    if has_section("motoko:compiler") || has_section("icp:private motoko:compiler") {
        return "compile with moc --map, and keep the map beside the module";
    }
    // What AssemblyScript's runtime exports for its host.
    if image.function_named("__new").is_some() && image.function_named("__pin").is_some() {
        return ASSEMBLYSCRIPT;
    }
    for name in image.function_names() {
        if name.starts_with("~lib/") {
            return ASSEMBLYSCRIPT;
        } else if name.contains("moonbitlang/core") {
            return "build with debug information, and keep the source map beside the module";
        } else if name.starts_with("kotlin.") {
            return "build the development variant, and keep its source map beside the module";
        }
    }
    "compile with -g, or give --debug-file"
}
