/**
 * Makes a page from the frame that all share, `page.html`: embeds the page's script and style in its HTML and allows exactly
 * these two by checksum in the content security policy, so that a browser runs nothing else on the page and makes no network
 * requests.
 */
import { createHash } from 'node:crypto';
import type { Plugin } from 'vite';

export function oneFile(name: string, title: string): Plugin {
  return {
    name: 'heaptide-one-file',
    enforce: 'post',
    apply: 'build',
    transformIndexHtml: {
      order: 'pre',
      handler: (html) => html.replace('%TITLE%', title).replace('%NAME%', name),
    },
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const html = files.find((file) => file.type === 'asset' && file.fileName.endsWith('.html'));
      if (html?.type !== 'asset') throw new Error('the build produced no page');
      let script = '';
      let style = '';
      for (const file of files) {
        if (file.type === 'chunk') script += file.code;
        else if (file.fileName.endsWith('.css')) style += file.source;
        else continue;
        delete bundle[file.fileName];
      }
      // Inside a script element these two would end it or change its parsing.
      script = script.replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--').trim();
      style = style.trim();
      const policy = [
        "default-src 'none'",
        `script-src '${checksum(script)}'`,
        `style-src '${checksum(style)}'`,
        'img-src data:',
        "base-uri 'none'",
        "form-action 'none'",
      ].join('; ');
      html.fileName = `${name}.html`;
      // Functions, because a replacement string could contain a `$` pattern.
      html.source = String(html.source)
        .replace(/\s*<script type="module"[^>]*><\/script>/, '')
        .replace(/\s*<link rel="stylesheet"[^>]*>/, '')
        .replace('<!-- policy -->', () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
        .replace('<!-- style -->', () => `<style>${style}</style>`)
        .replace('<!-- script -->', () => `<script type="module">${script}</script>`);
    },
  };
}

function checksum(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
