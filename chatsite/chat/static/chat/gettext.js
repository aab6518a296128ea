// The page's texts in the reader's language, from Django's catalogue, which a script before the modules has loaded.
// Without it the page speaks English.
const catalogue = globalThis.django ?? {
  gettext: (text) => text,
  ngettext: (one, many, number) => (number === 1 ? one : many),
};

export const { gettext, ngettext } = catalogue;

// Puts values where a text has %(name)s.
export function interpolate(text, values) {
  return text.replace(/%\((\w+)\)s/g, (_, name) => String(values[name]));
}

export function number(value) {
  return value.toLocaleString(document.documentElement.lang);
}
