/** Queries kept by this browser: take one, keep the one at hand, let one go. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { loadSaved, proposedName, type SavedQuery, storeSaved, withSaved, without } from "../query/saved";
import { Menu } from "./menu";

export function SavedQueries(props: { text: string; onTake: (text: string) => void }): ComponentChildren {
  const { text, onTake } = props;
  return (
    <Menu label="Saved" edge="right">
      {(close) => (
        <SavedPanel
          text={text}
          onTake={(taken) => {
            onTake(taken);
            close();
          }}
        />
      )}
    </Menu>
  );
}

function SavedPanel({ text, onTake }: { text: string; onTake: (text: string) => void }): ComponentChildren {
  const [saved, setSaved] = useState(() => loadSaved(localStorage));
  const [name, setName] = useState(() => saved.find((query) => query.text === text)?.name ?? proposedName(text));
  const change = (next: SavedQuery[]): void => {
    setSaved(next);
    storeSaved(localStorage, next);
  };
  return (
    <>
      <form
        class="save"
        onSubmit={(event) => {
          event.preventDefault();
          change(withSaved(saved, { name: name.trim(), text }));
        }}
      >
        <label>
          <span>Name</span>
          <input
            value={name}
            autocomplete="off"
            onInput={(event) => {
              setName(event.currentTarget.value);
            }}
          />
        </label>
        <button type="submit" disabled={name.trim() === "" || text.trim() === ""}>
          Save
        </button>
      </form>
      {saved.length === 0 && <p class="quiet menu-note">Saved queries stay in this browser.</p>}
      <ul class="menu-list">
        {saved.map((query) => (
          <li key={query.name}>
            <button
              type="button"
              class="menu-item"
              title={query.text}
              onClick={() => {
                onTake(query.text);
              }}
            >
              {query.name}
            </button>
            <button
              type="button"
              class="icon-button"
              aria-label={`Delete ${query.name}`}
              onClick={() => {
                change(without(saved, query.name));
              }}
            >
              ✕
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}
