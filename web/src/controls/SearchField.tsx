/** Search field for a regular expression, with a status text. */
import { expression } from '../model/search.ts';
import { change, settings, type Settings } from '../state.ts';

export function SearchField(props: {
  placeholder: string;
  label: string;
  status?: string;
  /** Other settings that a search changes. */
  also?: Partial<Settings>;
  onEnter?: (isBack: boolean) => void;
}) {
  const { search } = settings.value;
  const isBad = search !== '' && expression(search) === undefined;
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && props.onEnter) {
      props.onEnter(event.shiftKey);
    } else if (event.key === 'Escape') {
      change({ search: '' });
      (event.currentTarget as HTMLInputElement).blur();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <span class="search">
      <input
        type="search"
        // No character of the placeholder is wider than a digit on average, so all of it is visible.
        style={{ width: `${props.placeholder.length + 3}ch` }}
        placeholder={props.placeholder}
        aria-label={props.label}
        aria-invalid={isBad}
        spellcheck={false}
        value={search}
        onInput={(event) => change({ ...props.also, search: event.currentTarget.value })}
        onKeyDown={onKey}
      />
      <output aria-live="polite">{isBad ? 'invalid regular expression' : props.status}</output>
    </span>
  );
}
