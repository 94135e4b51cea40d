// Galleries: images side by side, each with its name.

function galleryExhibit(gallery) {
  return make('div', { class: 'gallery' }, gallery.pictures.map(({ label, png }) =>
    make('figure', {},
      make('img', { src: `data:image/png;base64,${png}`, alt: label }),
      make('figcaption', {}, label))));
}
