// The only way from a string to markup: HTML that this site's server rendered and cleaned.
const policy = globalThis.trustedTypes?.createPolicy("tokenline", { createHTML: (html) => html });

export function trusted(html) {
  return policy ? policy.createHTML(html) : html;
}
