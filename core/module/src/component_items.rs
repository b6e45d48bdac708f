//! What a component has numbers for, and where that comes from: its functions, its instances and the components in it.

use super::core_instances::CoreInstances;
use std::collections::HashMap;
use wasmparser::ComponentExternalKind;

/// Through how many others an item is looked for.
const MAX_STEPS: usize = 64;

/// How deep components may lie in each other for what is in them to have a name.
const MAX_NESTING: usize = 32;

/// The longest name of an instance, in bytes.
const MAX_NAME: usize = 256;

/// Items by their names: of what kind each is, and its number among those.
pub(super) type ItemsByName<'a> = HashMap<&'a str, (ComponentExternalKind, u32)>;

/// Where a function or an instance comes from that a component has a number for.
pub(super) enum Item<'a> {
    /// The component imports it by this name.
    Imported(&'a str),
    /// Its instance of this number exports it by this name.
    Exported(u32, &'a str),
    /// It has another number as well.
    Same(u32),
    /// An instance of this component, if it is known, which is given these items.
    Instantiated { component: Option<usize>, given: ItemsByName<'a> },
    /// An instance that is made of items.
    Bundle(ItemsByName<'a>),
    /// A function of wasm, or what is not followed.
    Other,
}

/// The instances that are made of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Instances {
    /// None.
    #[default]
    None,
    /// That of this number in this component.
    One(usize, u32),
    /// Several, or others than can be told.
    Several,
}

/// One component, as it is written.
#[derive(Default)]
pub(super) struct Component<'a> {
    /// Its core modules by its own numbers; `None` for those that it has from others.
    pub(super) core_modules: Vec<Option<usize>>,
    pub(super) core_instances: CoreInstances<'a>,
    pub(super) functions: Vec<Item<'a>>,
    pub(super) instances: Vec<Item<'a>>,
    /// The components that it has numbers for, by their numbers among all.
    pub(super) components: Vec<Option<usize>>,
    pub(super) exports: ItemsByName<'a>,
    /// What is made of it.
    pub(super) made: Instances,
    /// What it calls itself.
    pub(super) name: Option<&'a str>,
    pub(super) instance_names: HashMap<u32, &'a str>,
}

impl<'a> Component<'a> {
    fn item(&self, kind: ComponentExternalKind, number: u32) -> Option<&Item<'a>> {
        match kind {
            ComponentExternalKind::Func => self.functions.get(number as usize),
            ComponentExternalKind::Instance => self.instances.get(number as usize),
            _ => None,
        }
    }
}

/// What the whole, the first of `components`, imports, and another item is: an instance by its name, or a function by its own, with that of
/// the instance that it is of before it.
type Import<'a> = (Option<&'a str>, &'a str);

/// Where an item comes from in the end.
enum Origin<'c, 'a> {
    /// The whole imports it.
    Import(Import<'a>),
    /// It is that of this component.
    Item(usize, &'c Item<'a>),
}

/// The import of the whole that function `number` of component `component` is; `None` of functions of wasm, and if it cannot be told.
pub(super) fn imported_function<'a>(components: &[Component<'a>], component: usize, number: u32) -> Option<Import<'a>> {
    let mut steps = MAX_STEPS;
    match origin(components, component, ComponentExternalKind::Func, number, &mut steps)? {
        Origin::Import(import) => Some(import),
        Origin::Item(..) => None,
    }
}

fn origin<'c, 'a>(
    components: &'c [Component<'a>],
    mut component: usize,
    mut kind: ComponentExternalKind,
    mut number: u32,
    steps: &mut usize,
) -> Option<Origin<'c, 'a>> {
    loop {
        // Each looks for one other at most, which takes from the same steps.
        *steps = steps.checked_sub(1)?;
        let here = components.get(component)?;
        let next = match here.item(kind, number)? {
            Item::Same(other) => (component, (kind, *other)),
            Item::Imported(name) => match here.made {
                Instances::One(by, instance) => match components.get(by)?.instances.get(instance as usize)? {
                    Item::Instantiated { given, .. } => (by, *given.get(name)?),
                    _ => return None,
                },
                Instances::None if component == 0 => return Some(Origin::Import((None, name))),
                Instances::None | Instances::Several => return None,
            },
            Item::Exported(instance, name) => {
                match origin(components, component, ComponentExternalKind::Instance, *instance, steps)? {
                    Origin::Import((None, of)) => return Some(Origin::Import((Some(of), name))),
                    Origin::Import((Some(_), _)) => return None,
                    Origin::Item(of, Item::Bundle(items)) => (of, *items.get(name)?),
                    Origin::Item(_, Item::Instantiated { component, .. }) => {
                        ((*component)?, *components.get((*component)?)?.exports.get(name)?)
                    }
                    Origin::Item(..) => return None,
                }
            }
            item @ (Item::Instantiated { .. } | Item::Bundle(_) | Item::Other) => {
                return Some(Origin::Item(component, item));
            }
        };
        (component, (kind, number)) = next;
    }
}

/// The name of an instance, as much of it as is kept.
pub(super) fn bounded(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

/// What the only instance of a component is called: by its name, or else as the component calls itself, or else as `otherwise` says, behind those
/// that it is made in, but for the whole. `None` of the whole, and if there are several.
pub(super) fn instance_name(
    components: &[Component<'_>],
    mut component: usize,
    otherwise: impl Fn(usize) -> String,
) -> Option<String> {
    let mut name: Option<String> = None;
    for _ in 0..MAX_NESTING {
        if component == 0 {
            return name;
        }
        let here = components.get(component)?;
        let Instances::One(by, instance) = here.made else { return None };
        let own = components.get(by)?.instance_names.get(&instance).copied().or(here.name);
        // Those of the file may be long, and are looked at for each module.
        let own = own.map_or_else(|| otherwise(component), |own| bounded(own).to_owned());
        let whole = name.map_or_else(|| own.clone(), |inner| format!("{own}/{inner}"));
        name = Some(bounded(&whole).to_owned());
        component = by;
    }
    None
}
